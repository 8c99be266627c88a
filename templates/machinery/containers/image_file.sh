castoff_check_image() {
  if [[ ! -e $castoff_image ]]; then
    echo "castoff: container: the image is not on $(hostname): $castoff_image" >&2
    exit 1
  fi
}
castoff_at_container+=(castoff_check_image)
readonly -f castoff_check_image
