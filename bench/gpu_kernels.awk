# SPDX-License-Identifier: MIT
# Sums up the last whole step in a file of gpu_kernels.c:
#   awk -f gpu_kernels.awk FILE FILE
# A step launches two graphs: the lists of all ranks, and the optimizer.
BEGIN { FS = "\t" }
FNR == NR {
    if ($3 == -1 && $4 ~ /^cuGraphLaunch/) launch[++launches] = $1
    next
}
FNR == 1 { first = launch[launches - 3]; last = launch[launches - 1] }
$1 < first || $1 >= last { next }
$3 == -1 {
    call = $4
    if (call ~ /Synchronize/) { waited += $2; next }
    calls[call]++; host[call] += $2
    next
}
{ time[$4] += $2; count[$4]++; all += $2; n++; start[n] = $1; end[n] = $1 + $2 }
END {
    for (name in time)
        printf "%10.1f us %6d x %9.2f  %s\n", time[name], count[name],
            time[name] / count[name], name | "sort -rn"
    close("sort -rn")
    for (i = 2; i <= n; i++) { # nearly sorted already
        s = start[i]; e = end[i]
        for (k = i - 1; k > 0 && start[k] > s; k--) { start[k + 1] = start[k]; end[k + 1] = end[k] }
        start[k + 1] = s; end[k + 1] = e
    }
    most = start[1]
    for (i = 1; i <= n; i++) {
        if (start[i] > most) { idle += start[i] - most; if (start[i] - most > 20) long += start[i] - most }
        if (end[i] > most) most = end[i]
    }
    printf "a step: %.1f us; %d kernels, %.1f us in all; nothing ran in %.1f us, of which %.1f in gaps above 20 us\n",
        last - first, n, all, idle + last - first - (most - start[1]), long + last - first - (most - start[1])
    for (call in calls) { total += host[call]; m += calls[call]; list = list sprintf(" %s %d x %.1f us,", call, calls[call], host[call] / calls[call]) }
    printf "host: %d calls of the driver, %.1f us, and waits of %.1f us:%s\n", m, total, waited, list
}
