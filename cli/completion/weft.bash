# bash completion of weft
_weft() {
    local line=${COMP_LINE:0:COMP_POINT} words found word current skip=
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    current=${words[-1]}
    [[ $current == *[=:]* ]] && skip=${current%"${current##*[=:]}"} # there readline begins
    mapfile -t found < <("${words[0]/#\~/$HOME}" help --complete "${words[@]:1}" 2>/dev/null)
    COMPREPLY=()
    for word in "${found[@]}"; do
        if [[ $word == :files* ]]; then
            compopt -o filenames 2>/dev/null # folders get a slash
            mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "${current:${word#:files }}")
        else
            COMPREPLY+=("${word#"$skip"}")
        fi
    done
    [[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace 2>/dev/null
    return 0
}
complete -F _weft weft
