#compdef weft
# zsh completion of weft
_weft() {
    local word n=-1
    local -a open whole
    for word in "${(@f)$("${words[1]/#\~/$HOME}" help --complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        case $word in
            (:files*) n=${word#:files } ;;
            (*=) open+=("$word") ;;
            (?*) whole+=("$word") ;;
        esac
    done
    (( $#whole )) && compadd -- "${whole[@]}"
    (( $#open )) && compadd -S '' -- "${open[@]}"
    (( n > 0 )) && compset -p $n
    (( n >= 0 )) && _files
}
_weft "$@"
