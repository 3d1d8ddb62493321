# SPDX-License-Identifier: MIT
# Completion of `sluice` in bash. --help has the verbs, their options and, as
# a|b|c, the words that an argument may be. NAME is one of `sluice schedule
# --list`.
_sluice_help()
{
    ARGP_HELP_FMT=rmargin=999 "$@" --help 2>/dev/null
}

# What an argument may be, from how --help writes it: `NAME|FILE.csv`.
_sluice_values()
{
    local part words
    for part in $(tr '|[]:' ' ' <<<"$argument"); do
        words=
        case $part in
        NAME) words=$("$1" schedule --list | awk 'NR > 1 { print $1, $2 }') ;;
        FILE.* | OUT.*) compgen -d -- "$word"
            compgen -f -X "!*.${part#*.}" -- "$word" ;;
        FILE | DATA | PATH | TRACE) compgen -f -- "$word" ;;
        DIR | MODEL) compgen -d -- "$word" ;;
        [[:lower:]]*) words=$part ;;
        esac
        compgen -W "$words" -- "$word"
    done
}

_sluice()
{
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local command=("$1" "${COMP_WORDS[1]}") line="${COMP_WORDS[*]:1:COMP_CWORD}"
    local help argument= IFS=$' \t\n'
    [[ $word == : || $before == : ]] && return
    [[ $before == = ]] && before=${COMP_WORDS[COMP_CWORD - 2]}
    [[ $word == = ]] && word=

    if [[ $COMP_CWORD == 1 || $line == "help $word" ]]; then
        help=$(_sluice_help "$1" | sed -n '3,/^$/s/^  \([a-z]*\) .*/\1/p')
        [[ $COMP_CWORD == 1 ]] && help+=" help --help --version"
        COMPREPLY=($(compgen -W "$help" -- "$word"))
        return
    fi
    [[ $line == "bench "[[:lower:]]*" "* ]] && command+=("${COMP_WORDS[2]}")
    help=$(_sluice_help "${command[@]}")
    [[ $before =~ ^-[-a-z0-9]+$ ]] && argument=$(sed -nE \
        "s/^ +(-., )?$before(, --[a-z0-9-]+)?=([^ ]+).*/\3/p" <<<"$help")
    if [[ -z $argument && $word == -* ]]; then
        help=$(grep -oE '^ +(-., )?--[a-z0-9-]+' <<<"$help" | grep -o -- '--.*')
        COMPREPLY=($(compgen -W "$help" -- "$word"))
        return
    fi
    if [[ -z $argument && ${#command[@]} == 2 ]]; then
        argument=$(sed -nE 's/^(Usage|  or): .*\[OPTION\.\.\.\]//p' <<<"$help")
        [[ $help == *"FILE is CSV"* ]] && argument=${argument/FILE/FILE.csv}
    fi
    [[ $argument == *[A-Z]* ]] && compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(_sluice_values "$1")
    [[ ${#COMPREPLY[@]} == 0 && $argument == *FILE.* ]] &&
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
}
complete -F _sluice sluice
