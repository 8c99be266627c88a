"""The heads of castoff's scripts, made by `python -m castoff.launcher.planning.compilation`."""

# ruff: noqa
# fmt: off
from __future__ import annotations

from typing import Any

HEAD = 'head.sh.j2'
SOURCES = {'head.sh.j2': 2021516488, 'flux.sh.j2': 4068463503, 'slurm.sh.j2': 891103395, 'pbs.sh.j2': 3968322572, 'lsf.sh.j2': 2675115274, 'local.sh.j2': 257662978}


def flux(_filters: Any, *, features: Any, full_nodes: Any, fullest: Any, groups: Any, image: Any, kept: Any, plan: Any, program: Any, program_alone: Any, rows: Any, **_: Any) -> str:
    _parts: list[str] = []
    _add = _parts.append
    _add('#!' + str(_filters['interpreter'](plan.shell)) + '\n')
    for (name, value,) in plan.directives:
        _add('#flux: ' + str(_filters['flux_directive'](name, value)) + '\n')
    _add('\n')
    _add('# ' + str(_filters['comment'](plan.name)) + ' on ' + str(_filters['comment'](plan.site)) + ': ' + str(_filters['layout_words'](plan)) + '.\n')
    for line in _filters['share_words'](plan):
        _add('# ' + str(line) + '\n')
    for note in plan.notes:
        _add('# ' + str(_filters['comment'](note)) + '\n')
    _add('# Load castoff\'s functions first: they follow the last line that begins with "# === castoff".\n{ POSIXLY_CORRECT=1; unset -f awk builtin compgen echo eval exit export readonly set unset; unset -v POSIXLY_CORRECT\n  castoff_below=$(LC_ALL=C awk \'/^# === castoff /{m=NR} {l[NR]=$0} END{while(m&&++i<=NR)print(i>m?l[i]:"")}\' <"$0")\n  [[ $castoff_below == *castoff_loaded=1 ]] || { echo "castoff: $0 cannot be read: is all of it there?" >&2; exit 1; }\n  set -euo pipefail; eval "${castoff_below:LINENO-1}"; } # LINENO-1, so that errors have the right line numbers\n\n')
    if (not plan.script):
        _add('castoff_nodes=' + str(plan.nodes) + ' castoff_ranks=' + str(plan.ranks) + ' castoff_ranks_per_node=' + str(fullest) + ' castoff_full_nodes=' + str(full_nodes) + str(((' castoff_device_step=%d' % (plan.devices.step,)) if ('devices' in features) else "")) + '\n')
    if ('groups' in features):
        _add('castoff_groups="' + str(_filters['wrapped'](groups)) + '" # NODESxRANKS: consecutive nodes, and the ranks on each\n')
    if plan.walltime:
        _add('castoff_walltime=' + str(plan.walltime) + ' castoff_grace=' + str(plan.grace) + str(((' castoff_start_timeout=%d' % ((plan.start_timeout or 0),)) if (('nodes' in features) and (not plan.driver)) else "")) + ' # seconds; it is asked to stop in the last ' + str(plan.grace) + '\n')
    elif ('deadline' in features):
        _add('castoff_grace=' + str(plan.grace) + str(((' castoff_start_timeout=%d' % ((plan.start_timeout or 0),)) if (('nodes' in features) and (not plan.driver)) else "")) + ' # seconds; it is asked to stop in the last ' + str(plan.grace) + '\n')
    elif (('nodes' in features) and (not plan.driver)):
        _add('castoff_start_timeout=' + str((plan.start_timeout or 0)) + ' # seconds\n')
    if ('visible' in features):
        _add('castoff_device_variable=' + str(plan.device_variable) + ' castoff_visible=' + str(plan.devices.visible) + '\n')
    elif ('masks' in features):
        _add('castoff_device_variable=' + str(plan.device_variable) + '\ncastoff_masks="' + str(_filters['wrapped'](plan.devices.per_rank)) + '" # for each rank of a node\n')
    if ('taken' in features):
        _add('castoff_device_variable=' + str((plan.device_variable or '')) + '\n')
    if ('binds_ranks' in features):
        _add('castoff_cpu_lists="' + str(_filters['wrapped'](plan.cpu_lists)) + '" # for each rank of a node\n')
    if ('devices' in features):
        if plan.devices.indices:
            _add('castoff_device_indices="' + str(_filters['wrapped'](plan.devices.indices)) + '" # for each rank of a node, among the devices that it sees\n')
        if plan.devices.near:
            _add('castoff_near="' + str(_filters['wrapped'](plan.devices.near)) + '" # for each rank of a node, CPUs near its devices\ncastoff_better=' + str(plan.devices.better) + '\n')
    if plan.requeue_max:
        _add('castoff_requeue_max=' + str(plan.requeue_max) + ' # on ' + str(', '.join(map(str, plan.requeue_on))) + '\n')
    if plan.margin:
        _add('castoff_margin=' + str(plan.margin) + ' # seconds before the walltime at which running ranks are ended, for the requeue\n')
    if plan.signal:
        _add('castoff_chosen_signal=' + str(plan.signal.name) + ' castoff_signal_before=' + str(plan.signal.before) + ' # seconds before the walltime\n')
    if (plan.restart and plan.restart.max):
        _add('castoff_restart_max=' + str(plan.restart.max) + ' castoff_never="' + str(_filters['wrapped'](plan.restart.never)) + '" # exit codes that forbid a restart\n')
    if (plan.restart and plan.restart.spare_nodes):
        _add('castoff_spare_nodes=' + str(plan.restart.spare_nodes) + '\n')
    if (plan.restart and plan.restart.hang):
        _add('castoff_hang=' + str(plan.restart.hang) + ' # seconds without output or progress\n')
    if ('notify' in features):
        _add('castoff_notify_on="' + str(' '.join(map(str, plan.notify.on))) + '" castoff_notify_to="' + str(' '.join(map(str, plan.notify.hooks))) + '" # castoff notify\ncastoff_notify_name=' + str(_filters['sh'](plan.name)) + ' castoff_notify_site=' + str(_filters['sh'](plan.site)) + '\n')
    if plan.progress:
        _add('castoff_progress=' + str(_filters['sh'](plan.progress)) + '\n')
    if ('hosts' in features):
        _add('castoff_each_host=(' + str(_filters['words'](plan.each_host)) + ') # starts one process on each host\n')
    if plan.preflight:
        _add('castoff_host_devices=' + str(plan.preflight.devices) + ' castoff_host_memory=' + str(plan.preflight.memory) + ' # memory in KiB; required on each host\n')
        for line in plan.preflight.checks:
            _add('castoff_own_check ' + str(_filters['sh'](line)) + '\n')
    if ((plan.requeue_how == 'copy') and plan.env_from):
        _add('castoff_secrets="' + str(' '.join(map(str, plan.env_from))) + '" # variables that a copy of this job reads from the run directory\n')
    if plan.array_indices:
        _add('castoff_array_indices=' + str(plan.array_indices) + '\n')
    _add('export CASTOFF_ARRAY_COUNT=' + str((plan.array_count or 1)) + '\n')
    if plan.sharing:
        _add('castoff_together=' + str(plan.sharing.members) + ' castoff_at_once=' + str(plan.sharing.at_once) + ' castoff_job_nodes=' + str(plan.sharing.nodes) + ' castoff_per_node=' + str(plan.sharing.per_node) + ' # members\ncastoff_dispatch ' + str(plan.shell) + ' # runs the members one after the other; each runs what follows\n')
    _add('castoff_begin # make the run directory and its records; handle requests to stop\n')
    if plan.parameters:
        _add('\n# --- Parameters: a row for each member, in the order of its number\ncastoff_parameters ' + str(' '.join(map(str, plan.parameters.names))) + " <<'CASTOFF_PARAMETERS'\n")
        for row in rows:
            _add(str(row) + '\n')
        _add('CASTOFF_PARAMETERS\n')
    if plan.refers_to:
        _add('castoff_earlier ' + str(_filters['words'](plan.refers_to)) + ' # check after/NAME in the run directory, links to the runs of these names\n')
    if (plan.teardown or plan.site_teardown):
        _add("\n# --- Teardown: runs on this host at the end, if setup succeeded; the job's exit code stays the same\n")
    if plan.teardown:
        _add("castoff_at_end teardown <<'CASTOFF_TEARDOWN'\n")
        for line in plan.teardown:
            _add(str(_filters['line'](line, plan.refers_to)) + '\n')
        _add('CASTOFF_TEARDOWN\n')
    if plan.site_teardown:
        _add('castoff_at_end "the site\'s teardown" <<\'CASTOFF_TEARDOWN\'\n')
        for line in plan.site_teardown:
            _add(str(line) + '\n')
        _add('CASTOFF_TEARDOWN\n')
    if (((plan.setup or plan.python) or plan.snapshot) or ('inherit' in features)):
        _add('\n# --- Setup\n')
    pass
    if plan.snapshot:
        _add('castoff_snapshot # sets CASTOFF_CODE_DIR, the copy of the code\n')
    if plan.setup:
        for (name, value,) in plan.default_env.items():
            _add('export ' + str(name) + '=' + str(_filters['sh'](value)) + '\n')
        _add('castoff_setup # a failing line is reported and ends the job; unset variables are empty\n')
        for line in plan.setup:
            _add(str(_filters['line'](line, plan.refers_to)) + '\n')
        _add('castoff_setup_over\n')
    if plan.python:
        _add('PATH=' + str(_filters['sh'](_filters['folder'](plan.python))) + ':$PATH\n')
    if plan.snapshot:
        _add('cd -P "$CASTOFF_CODE_DIR"\n')
    _add('\n')
    if (not plan.script):
        _add('# --- Environment of the ranks\n')
    if (not plan.script):
        _add("castoff_clear_stale_env # a parent job's launcher variables must not reach our ranks\n")
    if (not plan.setup):
        for (name, value,) in plan.default_env.items():
            _add('export ' + str(name) + '=' + str(_filters['sh'](value)) + '\n')
    for (name, value,) in plan.env.items():
        if (name in program_alone):
            _add('castoff_for_program ' + str(name) + ' ' + str(_filters['word'](value, plan.refers_to)) + '\n')
        elif isinstance(value, str):
            _add('export ' + str(name) + '=' + str(_filters['word'](value, plan.refers_to)) + '\n')
        else:
            _add('unset -v ' + str(name) + '\n')
    for name in plan.env_from:
        _add('castoff_need ' + str(name) + '\n')
    if plan.function:
        _add("export SUBMITIT_EXECUTOR=castoff # submitit asks castoff for each rank's function\n")
    if plan.workdir:
        _add('cd ' + str(_filters['folder_word'](plan.workdir, plan.refers_to)) + '\n')
    if plan.teardown:
        _add('castoff_set_up=1 # teardown needs all of the above\n')
    if (('here' not in features) and (not plan.script)):
        _add('castoff_rendezvous' + str(("".join(map(str, (' ', _filters['sh'](plan.master_suffix),))) if plan.master_suffix else "")) + ' # sets MASTER_ADDR and MASTER_PORT\n')
    if (plan.driver and (not plan.script)):
        _add('castoff_export_hosts ' + str((plan.cores_per_rank or 0)) + ' ' + str(plan.devices_per_rank) + ' # sets CASTOFF_HOSTS, CASTOFF_HOST_FILE …\n')
    if plan.stage:
        _add("\n# --- Stage: copy to each node's local disk, before the ranks start\n")
        _add('castoff_stage_in ' + str((_filters['sh'](plan.local_storage) if plan.local_storage else '"${TMPDIR:-/tmp}"')) + '\n')
        for item in plan.stage:
            _add('castoff_item ' + str(_filters['sh'](item.source)) + ' ' + str(_filters['sh'](item.to)) + ' ' + str(('unpack' if item.unpack else 'copy')) + ' ' + str(('activate' if item.activate else 'leave')) + str(("".join(map(str, (' ', item.sha256,))) if item.sha256 else "")) + '\n')
    if plan.container:
        _add('\n# --- Container of each rank\n')
        _add('castoff_image=' + str(image) + '\n')
        if plan.python:
            _add('castoff_python_folder=' + str(_filters['sh'](_filters['folder'](plan.python))) + '\n')
        if kept:
            _add('castoff_kept="' + str(_filters['wrapped'](kept)) + '" # keep these, whatever the image sets\n')
        for (name, value,) in plan.container.env.items():
            _add('castoff_inside ' + str(name) + ' ' + str(_filters['sh'](value)) + '\n')
        for folder in plan.container.shared:
            _add('castoff_bind ' + str(_filters['sh'](folder)) + '\n')
        for mount in plan.container.mounts:
            _add('castoff_mount ' + str(_filters['sh'](mount)) + '\n')
        _add('castoff_container ' + str(_filters['words'](plan.container.argv)) + '\n')
    _add('\n# --- ' + str(('The script' if plan.script else 'Start')) + '\n')
    if plan.stage:
        _add('castoff_stage' + str(("".join(map(str, (' ', _filters['words'](plan.stage_start),))) if plan.stage_start else "")) + '\n')
    if plan.preload:
        _add('castoff_preload ' + str(_filters['words'](plan.preload_start)) + ' \\\n  -- ' + str(','.join(map(str, plan.preload))) + ' ' + str(program) + '\n')
    if ('restart' in features):
        _add('while :; do # restart in this job after a failure, at most restart.max times\n')
    if plan.script:
        _add('castoff_run_script ' + str(program) + " 3<&0 <<'" + str(_filters['delimiter'](plan.script)) + "'\n" + str(plan.script) + str(('' if plan.script.endswith('\n') else '\n')) + str(_filters['delimiter'](plan.script)) + '\n')
    elif plan.driver:
        _add('castoff_start "$castoff_rank" \\\n  ' + str(program) + '\n')
    elif ('here' in features):
        _add('castoff_start "${CASTOFF_COMMAND:-castoff}" ' + str(_filters['words'](plan.start)) + ' -- \\\n  ' + str(program) + '\n')
    else:
        _add('castoff_start ' + str(_filters['words'](plan.start)) + ' \\\n  "$castoff_rank" \\\n  ' + str(program) + '\n')
    if ('restart' in features):
        _add('castoff_restart || break\ndone\n')
    _add('castoff_end # record the ending; requeue if necessary\n')
    return "".join(_parts)


def slurm(_filters: Any, *, features: Any, full_nodes: Any, fullest: Any, groups: Any, image: Any, kept: Any, plan: Any, program: Any, program_alone: Any, rows: Any, **_: Any) -> str:
    _parts: list[str] = []
    _add = _parts.append
    _add('#!' + str(_filters['interpreter'](plan.shell)) + '\n')
    for (name, value,) in plan.directives:
        _add('#SBATCH ' + str(_filters['slurm_directive'](name, value)) + '\n')
    _add('\n')
    _add('# ' + str(_filters['comment'](plan.name)) + ' on ' + str(_filters['comment'](plan.site)) + ': ' + str(_filters['layout_words'](plan)) + '.\n')
    for line in _filters['share_words'](plan):
        _add('# ' + str(line) + '\n')
    for note in plan.notes:
        _add('# ' + str(_filters['comment'](note)) + '\n')
    _add('# Load castoff\'s functions first: they follow the last line that begins with "# === castoff".\n{ POSIXLY_CORRECT=1; unset -f awk builtin compgen echo eval exit export readonly set unset; unset -v POSIXLY_CORRECT\n  castoff_below=$(LC_ALL=C awk \'/^# === castoff /{m=NR} {l[NR]=$0} END{while(m&&++i<=NR)print(i>m?l[i]:"")}\' <"$0")\n  [[ $castoff_below == *castoff_loaded=1 ]] || { echo "castoff: $0 cannot be read: is all of it there?" >&2; exit 1; }\n  set -euo pipefail; eval "${castoff_below:LINENO-1}"; } # LINENO-1, so that errors have the right line numbers\n\n')
    if (not plan.script):
        _add('castoff_nodes=' + str(plan.nodes) + ' castoff_ranks=' + str(plan.ranks) + ' castoff_ranks_per_node=' + str(fullest) + ' castoff_full_nodes=' + str(full_nodes) + str(((' castoff_device_step=%d' % (plan.devices.step,)) if ('devices' in features) else "")) + '\n')
    if ('groups' in features):
        _add('castoff_groups="' + str(_filters['wrapped'](groups)) + '" # NODESxRANKS: consecutive nodes, and the ranks on each\n')
    if plan.walltime:
        _add('castoff_walltime=' + str(plan.walltime) + ' castoff_grace=' + str(plan.grace) + str(((' castoff_start_timeout=%d' % ((plan.start_timeout or 0),)) if (('nodes' in features) and (not plan.driver)) else "")) + ' # seconds; it is asked to stop in the last ' + str(plan.grace) + '\n')
    elif ('deadline' in features):
        _add('castoff_grace=' + str(plan.grace) + str(((' castoff_start_timeout=%d' % ((plan.start_timeout or 0),)) if (('nodes' in features) and (not plan.driver)) else "")) + ' # seconds; it is asked to stop in the last ' + str(plan.grace) + '\n')
    elif (('nodes' in features) and (not plan.driver)):
        _add('castoff_start_timeout=' + str((plan.start_timeout or 0)) + ' # seconds\n')
    if ('visible' in features):
        _add('castoff_device_variable=' + str(plan.device_variable) + ' castoff_visible=' + str(plan.devices.visible) + '\n')
    elif ('masks' in features):
        _add('castoff_device_variable=' + str(plan.device_variable) + '\ncastoff_masks="' + str(_filters['wrapped'](plan.devices.per_rank)) + '" # for each rank of a node\n')
    if ('taken' in features):
        _add('castoff_device_variable=' + str((plan.device_variable or '')) + '\n')
    if ('binds_ranks' in features):
        _add('castoff_cpu_lists="' + str(_filters['wrapped'](plan.cpu_lists)) + '" # for each rank of a node\n')
    if ('devices' in features):
        if plan.devices.indices:
            _add('castoff_device_indices="' + str(_filters['wrapped'](plan.devices.indices)) + '" # for each rank of a node, among the devices that it sees\n')
        if plan.devices.near:
            _add('castoff_near="' + str(_filters['wrapped'](plan.devices.near)) + '" # for each rank of a node, CPUs near its devices\ncastoff_better=' + str(plan.devices.better) + '\n')
    if plan.requeue_max:
        _add('castoff_requeue_max=' + str(plan.requeue_max) + ' # on ' + str(', '.join(map(str, plan.requeue_on))) + '\n')
    if plan.margin:
        _add('castoff_margin=' + str(plan.margin) + ' # seconds before the walltime at which running ranks are ended, for the requeue\n')
    if plan.signal:
        _add('castoff_chosen_signal=' + str(plan.signal.name) + ' castoff_signal_before=' + str(plan.signal.before) + ' # seconds before the walltime\n')
    if (plan.restart and plan.restart.max):
        _add('castoff_restart_max=' + str(plan.restart.max) + ' castoff_never="' + str(_filters['wrapped'](plan.restart.never)) + '" # exit codes that forbid a restart\n')
    if (plan.restart and plan.restart.spare_nodes):
        _add('castoff_spare_nodes=' + str(plan.restart.spare_nodes) + '\n')
    if (plan.restart and plan.restart.hang):
        _add('castoff_hang=' + str(plan.restart.hang) + ' # seconds without output or progress\n')
    if ('notify' in features):
        _add('castoff_notify_on="' + str(' '.join(map(str, plan.notify.on))) + '" castoff_notify_to="' + str(' '.join(map(str, plan.notify.hooks))) + '" # castoff notify\ncastoff_notify_name=' + str(_filters['sh'](plan.name)) + ' castoff_notify_site=' + str(_filters['sh'](plan.site)) + '\n')
    if plan.progress:
        _add('castoff_progress=' + str(_filters['sh'](plan.progress)) + '\n')
    if ('hosts' in features):
        _add('castoff_each_host=(' + str(_filters['words'](plan.each_host)) + ') # starts one process on each host\n')
    if plan.preflight:
        _add('castoff_host_devices=' + str(plan.preflight.devices) + ' castoff_host_memory=' + str(plan.preflight.memory) + ' # memory in KiB; required on each host\n')
        for line in plan.preflight.checks:
            _add('castoff_own_check ' + str(_filters['sh'](line)) + '\n')
    pass
    if plan.array_indices:
        _add('castoff_array_indices=' + str(plan.array_indices) + '\n')
    _add('export CASTOFF_ARRAY_COUNT=' + str((plan.array_count or 1)) + '\n')
    if plan.sharing:
        _add('castoff_together=' + str(plan.sharing.members) + ' castoff_at_once=' + str(plan.sharing.at_once) + ' castoff_job_nodes=' + str(plan.sharing.nodes) + ' castoff_per_node=' + str(plan.sharing.per_node) + ' # members\ncastoff_dispatch ' + str(plan.shell) + ' # runs the members one after the other; each runs what follows\n')
    _add('castoff_begin # make the run directory and its records; handle requests to stop\n')
    if plan.parameters:
        _add('\n# --- Parameters: a row for each member, in the order of its number\ncastoff_parameters ' + str(' '.join(map(str, plan.parameters.names))) + " <<'CASTOFF_PARAMETERS'\n")
        for row in rows:
            _add(str(row) + '\n')
        _add('CASTOFF_PARAMETERS\n')
    if plan.refers_to:
        _add('castoff_earlier ' + str(_filters['words'](plan.refers_to)) + ' # check after/NAME in the run directory, links to the runs of these names\n')
    if (plan.teardown or plan.site_teardown):
        _add("\n# --- Teardown: runs on this host at the end, if setup succeeded; the job's exit code stays the same\n")
    if plan.teardown:
        _add("castoff_at_end teardown <<'CASTOFF_TEARDOWN'\n")
        for line in plan.teardown:
            _add(str(_filters['line'](line, plan.refers_to)) + '\n')
        _add('CASTOFF_TEARDOWN\n')
    if plan.site_teardown:
        _add('castoff_at_end "the site\'s teardown" <<\'CASTOFF_TEARDOWN\'\n')
        for line in plan.site_teardown:
            _add(str(line) + '\n')
        _add('CASTOFF_TEARDOWN\n')
    if (((plan.setup or plan.python) or plan.snapshot) or ('inherit' in features)):
        _add('\n# --- Setup\n')
    pass
    if plan.snapshot:
        _add('castoff_snapshot # sets CASTOFF_CODE_DIR, the copy of the code\n')
    if plan.setup:
        for (name, value,) in plan.default_env.items():
            _add('export ' + str(name) + '=' + str(_filters['sh'](value)) + '\n')
        _add('castoff_setup # a failing line is reported and ends the job; unset variables are empty\n')
        for line in plan.setup:
            _add(str(_filters['line'](line, plan.refers_to)) + '\n')
        _add('castoff_setup_over\n')
    if plan.python:
        _add('PATH=' + str(_filters['sh'](_filters['folder'](plan.python))) + ':$PATH\n')
    if plan.snapshot:
        _add('cd -P "$CASTOFF_CODE_DIR"\n')
    _add('\n')
    if (not plan.script):
        _add('# --- Environment of the ranks\n')
    if (not plan.script):
        _add("castoff_clear_stale_env # a parent job's launcher variables must not reach our ranks\n")
    if (not plan.setup):
        for (name, value,) in plan.default_env.items():
            _add('export ' + str(name) + '=' + str(_filters['sh'](value)) + '\n')
    for (name, value,) in plan.env.items():
        if (name in program_alone):
            _add('castoff_for_program ' + str(name) + ' ' + str(_filters['word'](value, plan.refers_to)) + '\n')
        elif isinstance(value, str):
            _add('export ' + str(name) + '=' + str(_filters['word'](value, plan.refers_to)) + '\n')
        else:
            _add('unset -v ' + str(name) + '\n')
    for name in plan.env_from:
        _add('castoff_need ' + str(name) + '\n')
    if plan.function:
        _add("export SUBMITIT_EXECUTOR=castoff # submitit asks castoff for each rank's function\n")
    if plan.workdir:
        _add('cd ' + str(_filters['folder_word'](plan.workdir, plan.refers_to)) + '\n')
    if plan.teardown:
        _add('castoff_set_up=1 # teardown needs all of the above\n')
    if (('here' not in features) and (not plan.script)):
        _add('castoff_rendezvous' + str(("".join(map(str, (' ', _filters['sh'](plan.master_suffix),))) if plan.master_suffix else "")) + ' # sets MASTER_ADDR and MASTER_PORT\n')
    if (plan.driver and (not plan.script)):
        _add('castoff_export_hosts ' + str((plan.cores_per_rank or 0)) + ' ' + str(plan.devices_per_rank) + ' # sets CASTOFF_HOSTS, CASTOFF_HOST_FILE …\n')
    if plan.stage:
        _add("\n# --- Stage: copy to each node's local disk, before the ranks start\n")
        _add('castoff_stage_in ' + str((_filters['sh'](plan.local_storage) if plan.local_storage else '"${TMPDIR:-/tmp}"')) + '\n')
        for item in plan.stage:
            _add('castoff_item ' + str(_filters['sh'](item.source)) + ' ' + str(_filters['sh'](item.to)) + ' ' + str(('unpack' if item.unpack else 'copy')) + ' ' + str(('activate' if item.activate else 'leave')) + str(("".join(map(str, (' ', item.sha256,))) if item.sha256 else "")) + '\n')
    if plan.container:
        _add('\n# --- Container of each rank\n')
        _add('castoff_image=' + str(image) + '\n')
        if plan.python:
            _add('castoff_python_folder=' + str(_filters['sh'](_filters['folder'](plan.python))) + '\n')
        if kept:
            _add('castoff_kept="' + str(_filters['wrapped'](kept)) + '" # keep these, whatever the image sets\n')
        for (name, value,) in plan.container.env.items():
            _add('castoff_inside ' + str(name) + ' ' + str(_filters['sh'](value)) + '\n')
        for folder in plan.container.shared:
            _add('castoff_bind ' + str(_filters['sh'](folder)) + '\n')
        for mount in plan.container.mounts:
            _add('castoff_mount ' + str(_filters['sh'](mount)) + '\n')
        _add('castoff_container ' + str(_filters['words'](plan.container.argv)) + '\n')
    _add('\n# --- ' + str(('The script' if plan.script else 'Start')) + '\n')
    if plan.stage:
        _add('castoff_stage' + str(("".join(map(str, (' ', _filters['words'](plan.stage_start),))) if plan.stage_start else "")) + '\n')
    if plan.preload:
        _add('castoff_preload ' + str(_filters['words'](plan.preload_start)) + ' \\\n  -- ' + str(','.join(map(str, plan.preload))) + ' ' + str(program) + '\n')
    if ('restart' in features):
        _add('while :; do # restart in this job after a failure, at most restart.max times\n')
    if plan.script:
        _add('castoff_run_script ' + str(program) + " 3<&0 <<'" + str(_filters['delimiter'](plan.script)) + "'\n" + str(plan.script) + str(('' if plan.script.endswith('\n') else '\n')) + str(_filters['delimiter'](plan.script)) + '\n')
    elif plan.driver:
        _add('castoff_start "$castoff_rank" \\\n  ' + str(program) + '\n')
    elif ('here' in features):
        _add('castoff_start "${CASTOFF_COMMAND:-castoff}" ' + str(_filters['words'](plan.start)) + ' -- \\\n  ' + str(program) + '\n')
    else:
        _add('castoff_start ' + str(_filters['words'](plan.start)) + ' \\\n  "$castoff_rank" \\\n  ' + str(program) + '\n')
    if ('restart' in features):
        _add('castoff_restart || break\ndone\n')
    _add('castoff_end # record the ending; requeue if necessary\n')
    return "".join(_parts)


def pbs(_filters: Any, *, features: Any, full_nodes: Any, fullest: Any, groups: Any, image: Any, kept: Any, plan: Any, program: Any, program_alone: Any, rows: Any, **_: Any) -> str:
    _parts: list[str] = []
    _add = _parts.append
    _add('#!' + str(_filters['interpreter'](plan.shell)) + '\n')
    for (name, value,) in plan.directives:
        _add('#PBS ' + str(_filters['pbs_directive'](name, value)) + '\n')
    _add('\n')
    _add('# ' + str(_filters['comment'](plan.name)) + ' on ' + str(_filters['comment'](plan.site)) + ': ' + str(_filters['layout_words'](plan)) + '.\n')
    for line in _filters['share_words'](plan):
        _add('# ' + str(line) + '\n')
    for note in plan.notes:
        _add('# ' + str(_filters['comment'](note)) + '\n')
    _add('# Load castoff\'s functions first: they follow the last line that begins with "# === castoff".\n{ POSIXLY_CORRECT=1; unset -f awk builtin compgen echo eval exit export readonly set unset; unset -v POSIXLY_CORRECT\n  castoff_below=$(LC_ALL=C awk \'/^# === castoff /{m=NR} {l[NR]=$0} END{while(m&&++i<=NR)print(i>m?l[i]:"")}\' <"$0")\n  [[ $castoff_below == *castoff_loaded=1 ]] || { echo "castoff: $0 cannot be read: is all of it there?" >&2; exit 1; }\n  set -euo pipefail; eval "${castoff_below:LINENO-1}"; } # LINENO-1, so that errors have the right line numbers\n\n')
    if (not plan.script):
        _add('castoff_nodes=' + str(plan.nodes) + ' castoff_ranks=' + str(plan.ranks) + ' castoff_ranks_per_node=' + str(fullest) + ' castoff_full_nodes=' + str(full_nodes) + str(((' castoff_device_step=%d' % (plan.devices.step,)) if ('devices' in features) else "")) + '\n')
    if ('groups' in features):
        _add('castoff_groups="' + str(_filters['wrapped'](groups)) + '" # NODESxRANKS: consecutive nodes, and the ranks on each\n')
    if plan.walltime:
        _add('castoff_walltime=' + str(plan.walltime) + ' castoff_grace=' + str(plan.grace) + str(((' castoff_start_timeout=%d' % ((plan.start_timeout or 0),)) if (('nodes' in features) and (not plan.driver)) else "")) + ' # seconds; it is asked to stop in the last ' + str(plan.grace) + '\n')
    elif ('deadline' in features):
        _add('castoff_grace=' + str(plan.grace) + str(((' castoff_start_timeout=%d' % ((plan.start_timeout or 0),)) if (('nodes' in features) and (not plan.driver)) else "")) + ' # seconds; it is asked to stop in the last ' + str(plan.grace) + '\n')
    elif (('nodes' in features) and (not plan.driver)):
        _add('castoff_start_timeout=' + str((plan.start_timeout or 0)) + ' # seconds\n')
    if ('visible' in features):
        _add('castoff_device_variable=' + str(plan.device_variable) + ' castoff_visible=' + str(plan.devices.visible) + '\n')
    elif ('masks' in features):
        _add('castoff_device_variable=' + str(plan.device_variable) + '\ncastoff_masks="' + str(_filters['wrapped'](plan.devices.per_rank)) + '" # for each rank of a node\n')
    if ('taken' in features):
        _add('castoff_device_variable=' + str((plan.device_variable or '')) + '\n')
    if ('binds_ranks' in features):
        _add('castoff_cpu_lists="' + str(_filters['wrapped'](plan.cpu_lists)) + '" # for each rank of a node\n')
    if ('devices' in features):
        if plan.devices.indices:
            _add('castoff_device_indices="' + str(_filters['wrapped'](plan.devices.indices)) + '" # for each rank of a node, among the devices that it sees\n')
        if plan.devices.near:
            _add('castoff_near="' + str(_filters['wrapped'](plan.devices.near)) + '" # for each rank of a node, CPUs near its devices\ncastoff_better=' + str(plan.devices.better) + '\n')
    if plan.requeue_max:
        _add('castoff_requeue_max=' + str(plan.requeue_max) + ' # on ' + str(', '.join(map(str, plan.requeue_on))) + '\n')
    if plan.margin:
        _add('castoff_margin=' + str(plan.margin) + ' # seconds before the walltime at which running ranks are ended, for the requeue\n')
    if plan.signal:
        _add('castoff_chosen_signal=' + str(plan.signal.name) + ' castoff_signal_before=' + str(plan.signal.before) + ' # seconds before the walltime\n')
    if (plan.restart and plan.restart.max):
        _add('castoff_restart_max=' + str(plan.restart.max) + ' castoff_never="' + str(_filters['wrapped'](plan.restart.never)) + '" # exit codes that forbid a restart\n')
    if (plan.restart and plan.restart.spare_nodes):
        _add('castoff_spare_nodes=' + str(plan.restart.spare_nodes) + '\n')
    if (plan.restart and plan.restart.hang):
        _add('castoff_hang=' + str(plan.restart.hang) + ' # seconds without output or progress\n')
    if ('notify' in features):
        _add('castoff_notify_on="' + str(' '.join(map(str, plan.notify.on))) + '" castoff_notify_to="' + str(' '.join(map(str, plan.notify.hooks))) + '" # castoff notify\ncastoff_notify_name=' + str(_filters['sh'](plan.name)) + ' castoff_notify_site=' + str(_filters['sh'](plan.site)) + '\n')
    if plan.progress:
        _add('castoff_progress=' + str(_filters['sh'](plan.progress)) + '\n')
    if ('hosts' in features):
        _add('castoff_each_host=(' + str(_filters['words'](plan.each_host)) + ') # starts one process on each host\n')
    if plan.preflight:
        _add('castoff_host_devices=' + str(plan.preflight.devices) + ' castoff_host_memory=' + str(plan.preflight.memory) + ' # memory in KiB; required on each host\n')
        for line in plan.preflight.checks:
            _add('castoff_own_check ' + str(_filters['sh'](line)) + '\n')
    if ((plan.requeue_how == 'copy') and (not isinstance(plan.inherit, str))):
        _add('castoff_copied=' + str(','.join(map(str, plan.inherit))) + ' # variables passed to a copy of this job\n')
    if ((plan.requeue_how == 'copy') and plan.env_from):
        _add('castoff_secrets=' + str(','.join(map(str, plan.env_from))) + '\n')
    if plan.array_indices:
        _add('castoff_array_indices=' + str(plan.array_indices) + '\n')
    _add('export CASTOFF_ARRAY_COUNT=' + str((plan.array_count or 1)) + '\n')
    if plan.sharing:
        _add('castoff_together=' + str(plan.sharing.members) + ' castoff_at_once=' + str(plan.sharing.at_once) + ' castoff_job_nodes=' + str(plan.sharing.nodes) + ' castoff_per_node=' + str(plan.sharing.per_node) + ' # members\ncastoff_dispatch ' + str(plan.shell) + ' # runs the members one after the other; each runs what follows\n')
    _add('castoff_begin # make the run directory and its records; handle requests to stop\n')
    if plan.parameters:
        _add('\n# --- Parameters: a row for each member, in the order of its number\ncastoff_parameters ' + str(' '.join(map(str, plan.parameters.names))) + " <<'CASTOFF_PARAMETERS'\n")
        for row in rows:
            _add(str(row) + '\n')
        _add('CASTOFF_PARAMETERS\n')
    if plan.refers_to:
        _add('castoff_earlier ' + str(_filters['words'](plan.refers_to)) + ' # check after/NAME in the run directory, links to the runs of these names\n')
    if (plan.teardown or plan.site_teardown):
        _add("\n# --- Teardown: runs on this host at the end, if setup succeeded; the job's exit code stays the same\n")
    if plan.teardown:
        _add("castoff_at_end teardown <<'CASTOFF_TEARDOWN'\n")
        for line in plan.teardown:
            _add(str(_filters['line'](line, plan.refers_to)) + '\n')
        _add('CASTOFF_TEARDOWN\n')
    if plan.site_teardown:
        _add('castoff_at_end "the site\'s teardown" <<\'CASTOFF_TEARDOWN\'\n')
        for line in plan.site_teardown:
            _add(str(line) + '\n')
        _add('CASTOFF_TEARDOWN\n')
    if (((plan.setup or plan.python) or plan.snapshot) or ('inherit' in features)):
        _add('\n# --- Setup\n')
    pass
    if plan.snapshot:
        _add('castoff_snapshot # sets CASTOFF_CODE_DIR, the copy of the code\n')
    if plan.setup:
        for (name, value,) in plan.default_env.items():
            _add('export ' + str(name) + '=' + str(_filters['sh'](value)) + '\n')
        _add('castoff_setup # a failing line is reported and ends the job; unset variables are empty\n')
        for line in plan.setup:
            _add(str(_filters['line'](line, plan.refers_to)) + '\n')
        _add('castoff_setup_over\n')
    if plan.python:
        _add('PATH=' + str(_filters['sh'](_filters['folder'](plan.python))) + ':$PATH\n')
    if plan.snapshot:
        _add('cd -P "$CASTOFF_CODE_DIR"\n')
    _add('\n')
    if (not plan.script):
        _add('# --- Environment of the ranks\n')
    if (not plan.script):
        _add("castoff_clear_stale_env # a parent job's launcher variables must not reach our ranks\n")
    if (not plan.setup):
        for (name, value,) in plan.default_env.items():
            _add('export ' + str(name) + '=' + str(_filters['sh'](value)) + '\n')
    for (name, value,) in plan.env.items():
        if (name in program_alone):
            _add('castoff_for_program ' + str(name) + ' ' + str(_filters['word'](value, plan.refers_to)) + '\n')
        elif isinstance(value, str):
            _add('export ' + str(name) + '=' + str(_filters['word'](value, plan.refers_to)) + '\n')
        else:
            _add('unset -v ' + str(name) + '\n')
    for name in plan.env_from:
        _add('castoff_need ' + str(name) + '\n')
    if plan.function:
        _add("export SUBMITIT_EXECUTOR=castoff # submitit asks castoff for each rank's function\n")
    if plan.workdir:
        _add('cd ' + str(_filters['folder_word'](plan.workdir, plan.refers_to)) + '\n')
    if plan.teardown:
        _add('castoff_set_up=1 # teardown needs all of the above\n')
    if (('here' not in features) and (not plan.script)):
        _add('castoff_rendezvous' + str(("".join(map(str, (' ', _filters['sh'](plan.master_suffix),))) if plan.master_suffix else "")) + ' # sets MASTER_ADDR and MASTER_PORT\n')
    if (plan.driver and (not plan.script)):
        _add('castoff_export_hosts ' + str((plan.cores_per_rank or 0)) + ' ' + str(plan.devices_per_rank) + ' # sets CASTOFF_HOSTS, CASTOFF_HOST_FILE …\n')
    if plan.stage:
        _add("\n# --- Stage: copy to each node's local disk, before the ranks start\n")
        _add('castoff_stage_in ' + str((_filters['sh'](plan.local_storage) if plan.local_storage else '"${TMPDIR:-/tmp}"')) + '\n')
        for item in plan.stage:
            _add('castoff_item ' + str(_filters['sh'](item.source)) + ' ' + str(_filters['sh'](item.to)) + ' ' + str(('unpack' if item.unpack else 'copy')) + ' ' + str(('activate' if item.activate else 'leave')) + str(("".join(map(str, (' ', item.sha256,))) if item.sha256 else "")) + '\n')
    if plan.container:
        _add('\n# --- Container of each rank\n')
        _add('castoff_image=' + str(image) + '\n')
        if plan.python:
            _add('castoff_python_folder=' + str(_filters['sh'](_filters['folder'](plan.python))) + '\n')
        if kept:
            _add('castoff_kept="' + str(_filters['wrapped'](kept)) + '" # keep these, whatever the image sets\n')
        for (name, value,) in plan.container.env.items():
            _add('castoff_inside ' + str(name) + ' ' + str(_filters['sh'](value)) + '\n')
        for folder in plan.container.shared:
            _add('castoff_bind ' + str(_filters['sh'](folder)) + '\n')
        for mount in plan.container.mounts:
            _add('castoff_mount ' + str(_filters['sh'](mount)) + '\n')
        _add('castoff_container ' + str(_filters['words'](plan.container.argv)) + '\n')
    _add('\n# --- ' + str(('The script' if plan.script else 'Start')) + '\n')
    if plan.stage:
        _add('castoff_stage' + str(("".join(map(str, (' ', _filters['words'](plan.stage_start),))) if plan.stage_start else "")) + '\n')
    if plan.preload:
        _add('castoff_preload ' + str(_filters['words'](plan.preload_start)) + ' \\\n  -- ' + str(','.join(map(str, plan.preload))) + ' ' + str(program) + '\n')
    if ('restart' in features):
        _add('while :; do # restart in this job after a failure, at most restart.max times\n')
    if plan.script:
        _add('castoff_run_script ' + str(program) + " 3<&0 <<'" + str(_filters['delimiter'](plan.script)) + "'\n" + str(plan.script) + str(('' if plan.script.endswith('\n') else '\n')) + str(_filters['delimiter'](plan.script)) + '\n')
    elif plan.driver:
        _add('castoff_start "$castoff_rank" \\\n  ' + str(program) + '\n')
    elif ('here' in features):
        _add('castoff_start "${CASTOFF_COMMAND:-castoff}" ' + str(_filters['words'](plan.start)) + ' -- \\\n  ' + str(program) + '\n')
    else:
        _add('castoff_start ' + str(_filters['words'](plan.start)) + ' \\\n  "$castoff_rank" \\\n  ' + str(program) + '\n')
    if ('restart' in features):
        _add('castoff_restart || break\ndone\n')
    _add('castoff_end # record the ending; requeue if necessary\n')
    return "".join(_parts)


def lsf(_filters: Any, *, features: Any, full_nodes: Any, fullest: Any, groups: Any, image: Any, kept: Any, plan: Any, program: Any, program_alone: Any, rows: Any, **_: Any) -> str:
    _parts: list[str] = []
    _add = _parts.append
    _add('#!' + str(_filters['interpreter'](plan.shell)) + '\n')
    for (name, value,) in plan.directives:
        _add('#BSUB ' + str(_filters['lsf_directive'](name, value)) + '\n')
    _add('\n')
    _add('# ' + str(_filters['comment'](plan.name)) + ' on ' + str(_filters['comment'](plan.site)) + ': ' + str(_filters['layout_words'](plan)) + '.\n')
    for line in _filters['share_words'](plan):
        _add('# ' + str(line) + '\n')
    for note in plan.notes:
        _add('# ' + str(_filters['comment'](note)) + '\n')
    _add('# Load castoff\'s functions first: they follow the last line that begins with "# === castoff".\n{ POSIXLY_CORRECT=1; unset -f awk builtin compgen echo eval exit export readonly set unset; unset -v POSIXLY_CORRECT\n  castoff_below=$(LC_ALL=C awk \'/^# === castoff /{m=NR} {l[NR]=$0} END{while(m&&++i<=NR)print(i>m?l[i]:"")}\' <"$0")\n  [[ $castoff_below == *castoff_loaded=1 ]] || { echo "castoff: $0 cannot be read: is all of it there?" >&2; exit 1; }\n  set -euo pipefail; eval "${castoff_below:LINENO-1}"; } # LINENO-1, so that errors have the right line numbers\n\n')
    if (not plan.script):
        _add('castoff_nodes=' + str(plan.nodes) + ' castoff_ranks=' + str(plan.ranks) + ' castoff_ranks_per_node=' + str(fullest) + ' castoff_full_nodes=' + str(full_nodes) + str(((' castoff_device_step=%d' % (plan.devices.step,)) if ('devices' in features) else "")) + '\n')
    if ('groups' in features):
        _add('castoff_groups="' + str(_filters['wrapped'](groups)) + '" # NODESxRANKS: consecutive nodes, and the ranks on each\n')
    if plan.walltime:
        _add('castoff_walltime=' + str(plan.walltime) + ' castoff_grace=' + str(plan.grace) + str(((' castoff_start_timeout=%d' % ((plan.start_timeout or 0),)) if (('nodes' in features) and (not plan.driver)) else "")) + ' # seconds; it is asked to stop in the last ' + str(plan.grace) + '\n')
    elif ('deadline' in features):
        _add('castoff_grace=' + str(plan.grace) + str(((' castoff_start_timeout=%d' % ((plan.start_timeout or 0),)) if (('nodes' in features) and (not plan.driver)) else "")) + ' # seconds; it is asked to stop in the last ' + str(plan.grace) + '\n')
    elif (('nodes' in features) and (not plan.driver)):
        _add('castoff_start_timeout=' + str((plan.start_timeout or 0)) + ' # seconds\n')
    if ('visible' in features):
        _add('castoff_device_variable=' + str(plan.device_variable) + ' castoff_visible=' + str(plan.devices.visible) + '\n')
    elif ('masks' in features):
        _add('castoff_device_variable=' + str(plan.device_variable) + '\ncastoff_masks="' + str(_filters['wrapped'](plan.devices.per_rank)) + '" # for each rank of a node\n')
    if ('taken' in features):
        _add('castoff_device_variable=' + str((plan.device_variable or '')) + '\n')
    if ('binds_ranks' in features):
        _add('castoff_cpu_lists="' + str(_filters['wrapped'](plan.cpu_lists)) + '" # for each rank of a node\n')
    if ('devices' in features):
        if plan.devices.indices:
            _add('castoff_device_indices="' + str(_filters['wrapped'](plan.devices.indices)) + '" # for each rank of a node, among the devices that it sees\n')
        if plan.devices.near:
            _add('castoff_near="' + str(_filters['wrapped'](plan.devices.near)) + '" # for each rank of a node, CPUs near its devices\ncastoff_better=' + str(plan.devices.better) + '\n')
    if plan.requeue_max:
        _add('castoff_requeue_max=' + str(plan.requeue_max) + ' # on ' + str(', '.join(map(str, plan.requeue_on))) + '\n')
    if plan.margin:
        _add('castoff_margin=' + str(plan.margin) + ' # seconds before the walltime at which running ranks are ended, for the requeue\n')
    if plan.signal:
        _add('castoff_chosen_signal=' + str(plan.signal.name) + ' castoff_signal_before=' + str(plan.signal.before) + ' # seconds before the walltime\n')
    if (plan.restart and plan.restart.max):
        _add('castoff_restart_max=' + str(plan.restart.max) + ' castoff_never="' + str(_filters['wrapped'](plan.restart.never)) + '" # exit codes that forbid a restart\n')
    if (plan.restart and plan.restart.spare_nodes):
        _add('castoff_spare_nodes=' + str(plan.restart.spare_nodes) + '\n')
    if (plan.restart and plan.restart.hang):
        _add('castoff_hang=' + str(plan.restart.hang) + ' # seconds without output or progress\n')
    if ('notify' in features):
        _add('castoff_notify_on="' + str(' '.join(map(str, plan.notify.on))) + '" castoff_notify_to="' + str(' '.join(map(str, plan.notify.hooks))) + '" # castoff notify\ncastoff_notify_name=' + str(_filters['sh'](plan.name)) + ' castoff_notify_site=' + str(_filters['sh'](plan.site)) + '\n')
    if plan.progress:
        _add('castoff_progress=' + str(_filters['sh'](plan.progress)) + '\n')
    if ('hosts' in features):
        _add('castoff_each_host=(' + str(_filters['words'](plan.each_host)) + ') # starts one process on each host\n')
    if plan.preflight:
        _add('castoff_host_devices=' + str(plan.preflight.devices) + ' castoff_host_memory=' + str(plan.preflight.memory) + ' # memory in KiB; required on each host\n')
        for line in plan.preflight.checks:
            _add('castoff_own_check ' + str(_filters['sh'](line)) + '\n')
    pass
    if plan.array_indices:
        _add('castoff_array_indices=' + str(plan.array_indices) + '\n')
    _add('export CASTOFF_ARRAY_COUNT=' + str((plan.array_count or 1)) + '\n')
    if plan.sharing:
        _add('castoff_together=' + str(plan.sharing.members) + ' castoff_at_once=' + str(plan.sharing.at_once) + ' castoff_job_nodes=' + str(plan.sharing.nodes) + ' castoff_per_node=' + str(plan.sharing.per_node) + ' # members\ncastoff_dispatch ' + str(plan.shell) + ' # runs the members one after the other; each runs what follows\n')
    _add('castoff_begin # make the run directory and its records; handle requests to stop\n')
    if plan.parameters:
        _add('\n# --- Parameters: a row for each member, in the order of its number\ncastoff_parameters ' + str(' '.join(map(str, plan.parameters.names))) + " <<'CASTOFF_PARAMETERS'\n")
        for row in rows:
            _add(str(row) + '\n')
        _add('CASTOFF_PARAMETERS\n')
    if plan.refers_to:
        _add('castoff_earlier ' + str(_filters['words'](plan.refers_to)) + ' # check after/NAME in the run directory, links to the runs of these names\n')
    if (plan.teardown or plan.site_teardown):
        _add("\n# --- Teardown: runs on this host at the end, if setup succeeded; the job's exit code stays the same\n")
    if plan.teardown:
        _add("castoff_at_end teardown <<'CASTOFF_TEARDOWN'\n")
        for line in plan.teardown:
            _add(str(_filters['line'](line, plan.refers_to)) + '\n')
        _add('CASTOFF_TEARDOWN\n')
    if plan.site_teardown:
        _add('castoff_at_end "the site\'s teardown" <<\'CASTOFF_TEARDOWN\'\n')
        for line in plan.site_teardown:
            _add(str(line) + '\n')
        _add('CASTOFF_TEARDOWN\n')
    if (((plan.setup or plan.python) or plan.snapshot) or ('inherit' in features)):
        _add('\n# --- Setup\n')
    pass
    if plan.snapshot:
        _add('castoff_snapshot # sets CASTOFF_CODE_DIR, the copy of the code\n')
    if plan.setup:
        for (name, value,) in plan.default_env.items():
            _add('export ' + str(name) + '=' + str(_filters['sh'](value)) + '\n')
        _add('castoff_setup # a failing line is reported and ends the job; unset variables are empty\n')
        for line in plan.setup:
            _add(str(_filters['line'](line, plan.refers_to)) + '\n')
        _add('castoff_setup_over\n')
    if plan.python:
        _add('PATH=' + str(_filters['sh'](_filters['folder'](plan.python))) + ':$PATH\n')
    if plan.snapshot:
        _add('cd -P "$CASTOFF_CODE_DIR"\n')
    _add('\n')
    if (not plan.script):
        _add('# --- Environment of the ranks\n')
    if (not plan.script):
        _add("castoff_clear_stale_env # a parent job's launcher variables must not reach our ranks\n")
    if (not plan.setup):
        for (name, value,) in plan.default_env.items():
            _add('export ' + str(name) + '=' + str(_filters['sh'](value)) + '\n')
    for (name, value,) in plan.env.items():
        if (name in program_alone):
            _add('castoff_for_program ' + str(name) + ' ' + str(_filters['word'](value, plan.refers_to)) + '\n')
        elif isinstance(value, str):
            _add('export ' + str(name) + '=' + str(_filters['word'](value, plan.refers_to)) + '\n')
        else:
            _add('unset -v ' + str(name) + '\n')
    for name in plan.env_from:
        _add('castoff_need ' + str(name) + '\n')
    if plan.function:
        _add("export SUBMITIT_EXECUTOR=castoff # submitit asks castoff for each rank's function\n")
    if plan.workdir:
        _add('cd ' + str(_filters['folder_word'](plan.workdir, plan.refers_to)) + '\n')
    if plan.teardown:
        _add('castoff_set_up=1 # teardown needs all of the above\n')
    if (('here' not in features) and (not plan.script)):
        _add('castoff_rendezvous' + str(("".join(map(str, (' ', _filters['sh'](plan.master_suffix),))) if plan.master_suffix else "")) + ' # sets MASTER_ADDR and MASTER_PORT\n')
    if (plan.driver and (not plan.script)):
        _add('castoff_export_hosts ' + str((plan.cores_per_rank or 0)) + ' ' + str(plan.devices_per_rank) + ' # sets CASTOFF_HOSTS, CASTOFF_HOST_FILE …\n')
    if plan.stage:
        _add("\n# --- Stage: copy to each node's local disk, before the ranks start\n")
        _add('castoff_stage_in ' + str((_filters['sh'](plan.local_storage) if plan.local_storage else '"${TMPDIR:-/tmp}"')) + '\n')
        for item in plan.stage:
            _add('castoff_item ' + str(_filters['sh'](item.source)) + ' ' + str(_filters['sh'](item.to)) + ' ' + str(('unpack' if item.unpack else 'copy')) + ' ' + str(('activate' if item.activate else 'leave')) + str(("".join(map(str, (' ', item.sha256,))) if item.sha256 else "")) + '\n')
    if plan.container:
        _add('\n# --- Container of each rank\n')
        _add('castoff_image=' + str(image) + '\n')
        if plan.python:
            _add('castoff_python_folder=' + str(_filters['sh'](_filters['folder'](plan.python))) + '\n')
        if kept:
            _add('castoff_kept="' + str(_filters['wrapped'](kept)) + '" # keep these, whatever the image sets\n')
        for (name, value,) in plan.container.env.items():
            _add('castoff_inside ' + str(name) + ' ' + str(_filters['sh'](value)) + '\n')
        for folder in plan.container.shared:
            _add('castoff_bind ' + str(_filters['sh'](folder)) + '\n')
        for mount in plan.container.mounts:
            _add('castoff_mount ' + str(_filters['sh'](mount)) + '\n')
        _add('castoff_container ' + str(_filters['words'](plan.container.argv)) + '\n')
    _add('\n# --- ' + str(('The script' if plan.script else 'Start')) + '\n')
    if plan.stage:
        _add('castoff_stage' + str(("".join(map(str, (' ', _filters['words'](plan.stage_start),))) if plan.stage_start else "")) + '\n')
    if plan.preload:
        _add('castoff_preload ' + str(_filters['words'](plan.preload_start)) + ' \\\n  -- ' + str(','.join(map(str, plan.preload))) + ' ' + str(program) + '\n')
    if ('restart' in features):
        _add('while :; do # restart in this job after a failure, at most restart.max times\n')
    if plan.script:
        _add('castoff_run_script ' + str(program) + " 3<&0 <<'" + str(_filters['delimiter'](plan.script)) + "'\n" + str(plan.script) + str(('' if plan.script.endswith('\n') else '\n')) + str(_filters['delimiter'](plan.script)) + '\n')
    elif plan.driver:
        _add('castoff_start "$castoff_rank" \\\n  ' + str(program) + '\n')
    elif ('here' in features):
        _add('castoff_start "${CASTOFF_COMMAND:-castoff}" ' + str(_filters['words'](plan.start)) + ' -- \\\n  ' + str(program) + '\n')
    else:
        _add('castoff_start ' + str(_filters['words'](plan.start)) + ' \\\n  "$castoff_rank" \\\n  ' + str(program) + '\n')
    if ('restart' in features):
        _add('castoff_restart || break\ndone\n')
    _add('castoff_end # record the ending; requeue if necessary\n')
    return "".join(_parts)


def local(_filters: Any, *, features: Any, full_nodes: Any, fullest: Any, groups: Any, image: Any, kept: Any, plan: Any, program: Any, program_alone: Any, rows: Any, **_: Any) -> str:
    _parts: list[str] = []
    _add = _parts.append
    _add('#!' + str(_filters['interpreter'](plan.shell)) + '\n')
    pass
    _add('\n')
    _add('# ' + str(_filters['comment'](plan.name)) + ' on ' + str(_filters['comment'](plan.site)) + ': ' + str(_filters['layout_words'](plan)) + '.\n')
    for line in _filters['share_words'](plan):
        _add('# ' + str(line) + '\n')
    for note in plan.notes:
        _add('# ' + str(_filters['comment'](note)) + '\n')
    _add('# Load castoff\'s functions first: they follow the last line that begins with "# === castoff".\n{ POSIXLY_CORRECT=1; unset -f awk builtin compgen echo eval exit export readonly set unset; unset -v POSIXLY_CORRECT\n  castoff_below=$(LC_ALL=C awk \'/^# === castoff /{m=NR} {l[NR]=$0} END{while(m&&++i<=NR)print(i>m?l[i]:"")}\' <"$0")\n  [[ $castoff_below == *castoff_loaded=1 ]] || { echo "castoff: $0 cannot be read: is all of it there?" >&2; exit 1; }\n  set -euo pipefail; eval "${castoff_below:LINENO-1}"; } # LINENO-1, so that errors have the right line numbers\n\n')
    if (not plan.script):
        _add('castoff_nodes=' + str(plan.nodes) + ' castoff_ranks=' + str(plan.ranks) + ' castoff_ranks_per_node=' + str(fullest) + ' castoff_full_nodes=' + str(full_nodes) + str(((' castoff_device_step=%d' % (plan.devices.step,)) if ('devices' in features) else "")) + '\n')
    if ('groups' in features):
        _add('castoff_groups="' + str(_filters['wrapped'](groups)) + '" # NODESxRANKS: consecutive nodes, and the ranks on each\n')
    if plan.walltime:
        _add('castoff_walltime=' + str(plan.walltime) + ' castoff_grace=' + str(plan.grace) + str(((' castoff_start_timeout=%d' % ((plan.start_timeout or 0),)) if (('nodes' in features) and (not plan.driver)) else "")) + ' # seconds; it is asked to stop in the last ' + str(plan.grace) + '\n')
    elif ('deadline' in features):
        _add('castoff_grace=' + str(plan.grace) + str(((' castoff_start_timeout=%d' % ((plan.start_timeout or 0),)) if (('nodes' in features) and (not plan.driver)) else "")) + ' # seconds; it is asked to stop in the last ' + str(plan.grace) + '\n')
    elif (('nodes' in features) and (not plan.driver)):
        _add('castoff_start_timeout=' + str((plan.start_timeout or 0)) + ' # seconds\n')
    if ('visible' in features):
        _add('castoff_device_variable=' + str(plan.device_variable) + ' castoff_visible=' + str(plan.devices.visible) + '\n')
    elif ('masks' in features):
        _add('castoff_device_variable=' + str(plan.device_variable) + '\ncastoff_masks="' + str(_filters['wrapped'](plan.devices.per_rank)) + '" # for each rank of a node\n')
    if ('taken' in features):
        _add('castoff_device_variable=' + str((plan.device_variable or '')) + '\n')
    if ('binds_ranks' in features):
        _add('castoff_cpu_lists="' + str(_filters['wrapped'](plan.cpu_lists)) + '" # for each rank of a node\n')
    if ('devices' in features):
        if plan.devices.indices:
            _add('castoff_device_indices="' + str(_filters['wrapped'](plan.devices.indices)) + '" # for each rank of a node, among the devices that it sees\n')
        if plan.devices.near:
            _add('castoff_near="' + str(_filters['wrapped'](plan.devices.near)) + '" # for each rank of a node, CPUs near its devices\ncastoff_better=' + str(plan.devices.better) + '\n')
    if plan.requeue_max:
        _add('castoff_requeue_max=' + str(plan.requeue_max) + ' # on ' + str(', '.join(map(str, plan.requeue_on))) + '\n')
    if plan.margin:
        _add('castoff_margin=' + str(plan.margin) + ' # seconds before the walltime at which running ranks are ended, for the requeue\n')
    if plan.signal:
        _add('castoff_chosen_signal=' + str(plan.signal.name) + ' castoff_signal_before=' + str(plan.signal.before) + ' # seconds before the walltime\n')
    if (plan.restart and plan.restart.max):
        _add('castoff_restart_max=' + str(plan.restart.max) + ' castoff_never="' + str(_filters['wrapped'](plan.restart.never)) + '" # exit codes that forbid a restart\n')
    if (plan.restart and plan.restart.spare_nodes):
        _add('castoff_spare_nodes=' + str(plan.restart.spare_nodes) + '\n')
    if (plan.restart and plan.restart.hang):
        _add('castoff_hang=' + str(plan.restart.hang) + ' # seconds without output or progress\n')
    if ('notify' in features):
        _add('castoff_notify_on="' + str(' '.join(map(str, plan.notify.on))) + '" castoff_notify_to="' + str(' '.join(map(str, plan.notify.hooks))) + '" # castoff notify\ncastoff_notify_name=' + str(_filters['sh'](plan.name)) + ' castoff_notify_site=' + str(_filters['sh'](plan.site)) + '\n')
    if plan.progress:
        _add('castoff_progress=' + str(_filters['sh'](plan.progress)) + '\n')
    if ('hosts' in features):
        _add('castoff_each_host=(' + str(_filters['words'](plan.each_host)) + ') # starts one process on each host\n')
    if plan.preflight:
        _add('castoff_host_devices=' + str(plan.preflight.devices) + ' castoff_host_memory=' + str(plan.preflight.memory) + ' # memory in KiB; required on each host\n')
        for line in plan.preflight.checks:
            _add('castoff_own_check ' + str(_filters['sh'](line)) + '\n')
    if plan.array_count:
        _add('castoff_own_index=${1:-' + str(plan.first_member) + '} # bash job.sh 3 runs member 3 of the array\n')
    if plan.array_indices:
        _add('castoff_array_indices=' + str(plan.array_indices) + '\n')
    _add('export CASTOFF_ARRAY_COUNT=' + str((plan.array_count or 1)) + '\n')
    if plan.sharing:
        _add('castoff_together=' + str(plan.sharing.members) + ' castoff_at_once=' + str(plan.sharing.at_once) + ' castoff_job_nodes=' + str(plan.sharing.nodes) + ' castoff_per_node=' + str(plan.sharing.per_node) + ' # members\ncastoff_dispatch ' + str(plan.shell) + ' # runs the members one after the other; each runs what follows\n')
    _add('castoff_begin # make the run directory and its records; handle requests to stop\n')
    if plan.parameters:
        _add('\n# --- Parameters: a row for each member, in the order of its number\ncastoff_parameters ' + str(' '.join(map(str, plan.parameters.names))) + " <<'CASTOFF_PARAMETERS'\n")
        for row in rows:
            _add(str(row) + '\n')
        _add('CASTOFF_PARAMETERS\n')
    if plan.refers_to:
        _add('castoff_earlier ' + str(_filters['words'](plan.refers_to)) + ' # check after/NAME in the run directory, links to the runs of these names\n')
    if (plan.teardown or plan.site_teardown):
        _add("\n# --- Teardown: runs on this host at the end, if setup succeeded; the job's exit code stays the same\n")
    if plan.teardown:
        _add("castoff_at_end teardown <<'CASTOFF_TEARDOWN'\n")
        for line in plan.teardown:
            _add(str(_filters['line'](line, plan.refers_to)) + '\n')
        _add('CASTOFF_TEARDOWN\n')
    if plan.site_teardown:
        _add('castoff_at_end "the site\'s teardown" <<\'CASTOFF_TEARDOWN\'\n')
        for line in plan.site_teardown:
            _add(str(line) + '\n')
        _add('CASTOFF_TEARDOWN\n')
    if (((plan.setup or plan.python) or plan.snapshot) or ('inherit' in features)):
        _add('\n# --- Setup\n')
    if (plan.inherit != 'all'):
        _add('castoff_inherit' + str("".join(map(str, (' ', ' '.join(map(str, ((plan.inherit if (not isinstance(plan.inherit, str)) else []) + plan.env_from))),)))) + ' # all other variables are dropped\n')
    if plan.snapshot:
        _add('castoff_snapshot # sets CASTOFF_CODE_DIR, the copy of the code\n')
    if plan.setup:
        for (name, value,) in plan.default_env.items():
            _add('export ' + str(name) + '=' + str(_filters['sh'](value)) + '\n')
        _add('castoff_setup # a failing line is reported and ends the job; unset variables are empty\n')
        for line in plan.setup:
            _add(str(_filters['line'](line, plan.refers_to)) + '\n')
        _add('castoff_setup_over\n')
    if plan.python:
        _add('PATH=' + str(_filters['sh'](_filters['folder'](plan.python))) + ':$PATH\n')
    if plan.snapshot:
        _add('cd -P "$CASTOFF_CODE_DIR"\n')
    _add('\n')
    if (not plan.script):
        _add('# --- Environment of the ranks\n')
    if (not plan.script):
        _add("castoff_clear_stale_env # a parent job's launcher variables must not reach our ranks\n")
    if (not plan.setup):
        for (name, value,) in plan.default_env.items():
            _add('export ' + str(name) + '=' + str(_filters['sh'](value)) + '\n')
    for (name, value,) in plan.env.items():
        if (name in program_alone):
            _add('castoff_for_program ' + str(name) + ' ' + str(_filters['word'](value, plan.refers_to)) + '\n')
        elif isinstance(value, str):
            _add('export ' + str(name) + '=' + str(_filters['word'](value, plan.refers_to)) + '\n')
        else:
            _add('unset -v ' + str(name) + '\n')
    for name in plan.env_from:
        _add('castoff_need ' + str(name) + '\n')
    if plan.function:
        _add("export SUBMITIT_EXECUTOR=castoff # submitit asks castoff for each rank's function\n")
    if plan.workdir:
        _add('cd ' + str(_filters['folder_word'](plan.workdir, plan.refers_to)) + '\n')
    if plan.teardown:
        _add('castoff_set_up=1 # teardown needs all of the above\n')
    if (('here' not in features) and (not plan.script)):
        _add('castoff_rendezvous' + str(("".join(map(str, (' ', _filters['sh'](plan.master_suffix),))) if plan.master_suffix else "")) + ' # sets MASTER_ADDR and MASTER_PORT\n')
    if (plan.driver and (not plan.script)):
        _add('castoff_export_hosts ' + str((plan.cores_per_rank or 0)) + ' ' + str(plan.devices_per_rank) + ' # sets CASTOFF_HOSTS, CASTOFF_HOST_FILE …\n')
    if plan.stage:
        _add("\n# --- Stage: copy to each node's local disk, before the ranks start\n")
        _add('castoff_stage_in ' + str((_filters['sh'](plan.local_storage) if plan.local_storage else '"${TMPDIR:-/tmp}"')) + '\n')
        for item in plan.stage:
            _add('castoff_item ' + str(_filters['sh'](item.source)) + ' ' + str(_filters['sh'](item.to)) + ' ' + str(('unpack' if item.unpack else 'copy')) + ' ' + str(('activate' if item.activate else 'leave')) + str(("".join(map(str, (' ', item.sha256,))) if item.sha256 else "")) + '\n')
    if plan.container:
        _add('\n# --- Container of each rank\n')
        _add('castoff_image=' + str(image) + '\n')
        if plan.python:
            _add('castoff_python_folder=' + str(_filters['sh'](_filters['folder'](plan.python))) + '\n')
        if kept:
            _add('castoff_kept="' + str(_filters['wrapped'](kept)) + '" # keep these, whatever the image sets\n')
        for (name, value,) in plan.container.env.items():
            _add('castoff_inside ' + str(name) + ' ' + str(_filters['sh'](value)) + '\n')
        for folder in plan.container.shared:
            _add('castoff_bind ' + str(_filters['sh'](folder)) + '\n')
        for mount in plan.container.mounts:
            _add('castoff_mount ' + str(_filters['sh'](mount)) + '\n')
        _add('castoff_container ' + str(_filters['words'](plan.container.argv)) + '\n')
    _add('\n# --- ' + str(('The script' if plan.script else 'Start')) + '\n')
    if plan.stage:
        _add('castoff_stage' + str(("".join(map(str, (' ', _filters['words'](plan.stage_start),))) if plan.stage_start else "")) + '\n')
    if plan.preload:
        _add('castoff_preload ' + str(_filters['words'](plan.preload_start)) + ' \\\n  -- ' + str(','.join(map(str, plan.preload))) + ' ' + str(program) + '\n')
    if ('restart' in features):
        _add('while :; do # restart in this job after a failure, at most restart.max times\n')
    if plan.script:
        _add('castoff_run_script ' + str(program) + " 3<&0 <<'" + str(_filters['delimiter'](plan.script)) + "'\n" + str(plan.script) + str(('' if plan.script.endswith('\n') else '\n')) + str(_filters['delimiter'](plan.script)) + '\n')
    elif plan.driver:
        _add('castoff_start "$castoff_rank" \\\n  ' + str(program) + '\n')
    elif ('here' in features):
        _add('castoff_start "${CASTOFF_COMMAND:-castoff}" ' + str(_filters['words'](plan.start)) + ' -- \\\n  ' + str(program) + '\n')
    else:
        _add('castoff_start ' + str(_filters['words'](plan.start)) + ' \\\n  "$castoff_rank" \\\n  ' + str(program) + '\n')
    if ('restart' in features):
        _add('castoff_restart || break\ndone\n')
    _add('castoff_end # record the ending; requeue if necessary\n')
    return "".join(_parts)
