# shellcheck shell=bash
# Unpacks Debian's packages without installing them. Sourced.

# unpack_debian FOLDER PACKAGE...: makes FOLDER in one move.
unpack_debian() {
    local folder=$1 packages=$1.packages package
    shift
    rm -rf "$packages" "$folder.partial"
    mkdir -p "$packages" "$folder.partial"
    # A new machine has no lists of packages yet, and only root can fetch them.
    (cd "$packages" && { apt-get download -qq "$@" || { apt-get update -qq && apt-get download -qq "$@"; }; }) || return 1
    for package in "$packages"/*.deb; do
        dpkg -x "$package" "$folder.partial" || return 1
    done
    rm -rf "$packages"
    mv "$folder.partial" "$folder"
}
