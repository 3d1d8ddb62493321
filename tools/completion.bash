# SPDX-License-Identifier: MIT
# Completion of `sluice` in bash: verbs, and their options as --help has them.
_sluice()
{
    local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]} known
    if [ "$COMP_CWORD" -eq 1 ]; then
        known=$(sluice --help 2>/dev/null |
            sed -n '3,/^$/s/^  \([a-z]*\) .*/\1/p')
        COMPREPLY=($(compgen -W "$known help --help --version" -- "$word"))
    elif [[ $word == -* ]]; then
        known=$(sluice "$verb" --help 2>/dev/null | grep -o -e '--[a-z0-9-]*')
        COMPREPLY=($(compgen -W "$known" -- "$word"))
    else
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}
complete -o filenames -F _sluice sluice
