# SPDX-License-Identifier: MIT
# Sums up the last step of a file of gpu_kernels.c: awk -f gpu_kernels.awk FILE FILE.
# A step launches two graphs, of the ranks' lists and of the optimizer.
BEGIN { FS = "\t" }
FNR == NR {
    if ($4 ~ /^cuGraphLaunch/ && $1 > last) { before = last; last = $1 }
    next
}
$1 < before { next }
$3 == -1 {
    if ($4 !~ /Synchronize/) { calls++; host += $2 }
    next
}
{ time[$4] += $2; count[$4]++; all += $2; n++; start[n] = $1; end[n] = $1 + $2 }
END {
    for (name in time)
        printf "%10.1f us %6d x %9.2f  %s\n", time[name], count[name],
            time[name] / count[name], name | "sort -rn"
    close("sort -rn")
    # The part of the step in which nothing runs.
    sorted = n
    for (i = 2; i <= n; i++) { # nearly sorted already
        s = start[i]; e = end[i]
        for (k = i - 1; k > 0 && start[k] > s; k--) { start[k + 1] = start[k]; end[k + 1] = end[k] }
        start[k + 1] = s; end[k + 1] = e
    }
    most = start[1]
    for (i = 1; i <= n; i++) {
        if (start[i] > most) idle += start[i] - most
        if (end[i] > most) most = end[i]
    }
    printf "%d kernels, %.1f us in all, within %.1f us, of which nothing ran in %.1f\n", n,
        all, most - start[1], idle
    printf "host: %d calls of the driver, %.1f us\n", calls, host
}
