# SPDX-License-Identifier: MIT
# Environment for tests that call mpirun: more ranks than cores, as root where
# it must be, without what containers do not allow. Open MPI 4 and 5 read
# different names; other MPIs read none of them.
export OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export OMPI_MCA_mpi_yield_when_idle=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_smsc=^cma
# Open MPI makes one folder for all runs of a user where temporary files are, and
# the last of them removes it, perhaps while another comes: here each script has
# its own, in $tmp.
TMPDIR=$(mktemp -d -p "$tmp")
export TMPDIR
# MPI leaks a little by itself.
export ASAN_OPTIONS="detect_leaks=0"
