# fish completion of weft
function __weft_complete
    set -l current (commandline -ct)
    set -l words (commandline -opc) "$current"
    for line in (command $words[1] help --complete $words[2..] 2>/dev/null)
        if string match -q ':files *' -- $line
            set -l n (string replace ':files ' '' -- $line)
            set -l before (string sub -l $n -- "$current")
            for path in (__fish_complete_path (string sub -s (math $n + 1) -- "$current"))
                echo $before$path
            end
        else
            echo $line
        end
    end
end
complete -c weft -f -a '(__weft_complete)'
