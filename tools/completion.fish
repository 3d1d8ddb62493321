# SPDX-License-Identifier: MIT
# Completion of `sluice` in fish. --help has the verbs, their options and, as
# a|b|c, the words that an argument may be. NAME is one of `sluice schedule
# --list`.

# What an argument may be, from how --help writes it: `NAME|FILE.csv`.
function __sluice_values --argument-names argument
    set -l word (commandline -ct | string replace -r '^--[^=]*=' '')
    for part in (string match -ra '[^][|: ]+' -- $argument)
        switch $part
            case NAME
                sluice schedule --list | sed '1d; s/  */ /g' |
                    while read -l name short what
                    printf '%s\t%s\n' $name $what $short $what
                end
            case 'FILE.*' 'OUT.*'
                __fish_complete_suffix $word .(string split . -- $part)[2]
            case FILE DATA PATH TRACE
                __fish_complete_path $word
            case DIR MODEL
                __fish_complete_directories $word ''
            case '*'
                string match -r '^[a-z][\w.-]*$' -- $part
        end
    end
end

function __sluice_help
    ARGP_HELP_FMT=rmargin=999,opt-doc-col=60 sluice $argv --help 2>/dev/null
end

# Whether the line is of this verb, or of this verb of a verb.
function __sluice_is
    set -l line (commandline -opc)[2..]
    test "$line[1]" = $argv[1]; or return
    if set -q argv[2]
        test "$line[2]" = $argv[2]
    else
        not string match -q 'bench step' -- "$line[1..2]"
    end
end

function __sluice_verb
    set -l is "__sluice_is $argv"
    set -l help (__sluice_help $argv)
    set -l named '(-([?]|(?<short>\w)), )?--(?<long>[a-z0-9-]+)'
    for line in $help
        string match -qr "^ +$named(=(?<argument>\S+))? +(?<about>.*)" -- $line
        or continue
        set -l option -l $long -d $about
        test -n "$short"; and set -a option -s $short
        test -n "$argument"; and set -a option -x -k \
            -a "(__sluice_values '$argument')"
        complete -c sluice -n $is $option
    end
    set -q argv[2]; and return
    set -l argument (string replace -rf '^(Usage|  or): .*\[OPTION...\]' '' \
        -- $help)
    string match -q '*FILE is CSV*' -- "$help"
    and set argument (string replace FILE FILE.csv -- $argument)
    set -l words (string match -ra '(?<=[ |])[a-z]+' -- $argument)
    complete -c sluice -k -a "(__sluice_values '$argument')" \
        -n "$is; and not __fish_seen_subcommand_from $words"
end

command -q sluice; or return
complete -c sluice -f
complete -c sluice -n __fish_is_first_arg -a help
complete -c sluice -n __fish_is_first_arg -l help
complete -c sluice -n __fish_is_first_arg -l version
for line in (__sluice_help | sed -n '3,/^$/s/^  \([a-z]*\) */\1\t/p')
    set -l verb (string split \t -- $line)
    complete -c sluice -n '__fish_is_first_arg; or __sluice_is help' \
        -a $verb[1] -d $verb[2]
    __sluice_verb $verb[1]
end
__sluice_verb bench step
