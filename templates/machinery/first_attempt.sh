castoff_note_first_attempt() { export CASTOFF_FIRST_ATTEMPT=${CASTOFF_FIRST_ATTEMPT:-0}; } # of this submission
castoff_at_attempt+=(castoff_note_first_attempt)
readonly -f castoff_note_first_attempt
