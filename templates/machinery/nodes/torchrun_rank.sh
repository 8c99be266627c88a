castoff_exec() { exec "$@" </dev/null; }
castoff_on_usr1() { castoff_pass_on USR1; }
