#compdef sluice
# SPDX-License-Identifier: MIT
# Completion of `sluice` in zsh. --help has the verbs, their options and, as
# a|b|c, the words that an argument may be. NAME is one of `sluice schedule
# --list`.
_sluice_help() {
    ARGP_HELP_FMT=rmargin=999,opt-doc-col=60 "$@" --help 2>/dev/null
}

# What an argument may be, from how --help writes it: `NAME|FILE.csv`.
_sluice_values() {
    local part files
    local -a values
    for part in ${=1//[]\[|:]/ }; do
        case $part in
        NAME) values+=($($command[1] schedule --list |
            awk 'NR > 1 { print $1, $2 }')) ;;
        FILE.*|OUT.*) files="_files -g '*.${part#*.}'" ;;
        FILE|DATA|PATH|TRACE) files=_files ;;
        DIR|MODEL) files=${files:-_directories} ;;
        [[:lower:]]*) values+=($part) ;;
        esac
    done
    _alternative 'values:value:compadd -a values' ${files:+"files:file:$files"}
}

_sluice() {
    local -a command verbs options match mbegin mend
    local help line value positional
    command=(${~words[1]})
    if (( CURRENT == 2 )) || [[ $CURRENT$words[2] == 3help ]]; then
        verbs=(${(f)"$(_sluice_help $command |
            sed -n '3,/^$/s/^  \([a-z]*\) */\1:/p')"})
        (( CURRENT == 2 )) && verbs+=(help --help --version)
        _describe verb verbs
        return
    fi
    command+=($words[2])
    (( CURRENT > 3 )) && [[ $words[2,3] == bench\ [[:lower:]]* ]] &&
        command+=($words[3])
    help=$(_sluice_help $command)
    for line in ${(f)help}; do
        [[ $line =~ \
            '^ +(-(.), )?(--[a-z0-9-]+)(=([^ ]+))? +(.*)$' ]] || continue
        value=${match[5]:+":$match[5]: _sluice_values ${(q)match[5]}"}
        value="[${${match[6]//\[/\\[}//\]/\\]}]$value"
        options+=("$match[3]${match[5]:+=}$value")
        [[ $match[2] == [a-z] ]] && options+=("-$match[2]${match[5]:++}$value")
    done
    if (( $#command == 2 )); then
        positional=$(sed -nE 's/^(Usage|  or): .*\[OPTION\.\.\.\]//p' <<<$help)
        [[ $help == *'FILE is CSV'* ]] && positional=${positional/FILE/FILE.csv}
        options+=('*:argument: _sluice_values $positional')
    fi
    shift $(( $#command - 1 )) words
    (( CURRENT -= $#command - 1 ))
    _arguments -s : $options
}

_sluice "$@"
