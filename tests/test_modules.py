"""Every module says what it is, keeps its word about what it offers, and has a test file or a reason to have none."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "relive"
GENERATED = ("_pb2.py",)

# Where a module is tested that has no test_NAME.py: a file of tests, or the reason why there is none.
TESTED_IN = {
    "signals/tasks.py": "tests/signals/test_deaths.py",
    "containers/archive/layout.py": "tests/remotes/test_checkpoint.py",
    "images/validation.py": "tests/real/test_hostile.py",
    "replay/fresh/attempt_plan.py": "tests/real/test_reproduce.py",
    "replay/fresh/recorded_answers.py": "tests/replay/fresh/test_laid_answers.py",
    "sandbox/fresh_process.py": "tests/real/test_reproduce.py",
    "__init__.py": "it holds the version only",
    "agent/__main__.py": "tests/real/test_failures.py",
    "sandbox/inode_numbers.py": "tests/sandbox/test_inode_filesystem.py",
    "watching/__main__.py": "tests/real/test_watching.py",
    "watching/agent.py": "tests/real/test_watching.py",
    "watching/engine.py": "tests/real/test_watching.py",
    "watching/engines.py": "tests/real/test_watching.py",
    "watching/target.py": "tests/real/test_watching.py",
    "watching/launch.py": "tests/real/test_watching.py",
    "watching/timestamps.py": "tests/watching/test_output.py",
    "agent/control/lean.py": "tests/agent/test_memory_use.py",
    "kernel/heap.py": "tests/agent/test_memory_use.py",
    "agent/failures/log_files.py": "tests/watching/processes/test_output.py",
    "operations/revive.py": "tests/real/test_front.py",
    "watching/processes/process.py": "tests/real/test_watched_services.py",
    "watching/processes/running.py": "tests/real/test_watched_services.py",
    "watching/processes/taking.py": "tests/real/test_watched_services.py",
    "watching/processes/port.py": "tests/real/test_watched_services.py",
    "watching/processes/answering.py": "tests/real/test_watched_services.py",
    "checkpoint/watched_files.py": "tests/real/test_watched_services.py",
    "kernel/fanotify.py": "tests/real/test_watched_services.py",
    "kernel/procevents.py": "tests/real/test_watched_services.py",
    "kernel/sklookup.py": "tests/real/test_watched_services.py",
    "proxies/ingress/takeover.py": "tests/real/test_watched_services.py",
    "proxies/ingress/_traffic.py": "tests/proxies/test_proxy.py",
    "watching/respawning.py": "tests/real/test_watching.py",
    "watching/life.py": "tests/real/test_watching.py",
    "watching/podman_engine.py": "tests/real/test_watching.py",
    "watching/start.py": "tests/real/test_watching.py",
    "agent/control/process.py": "tests/real/test_failures.py",
    "agent/capsule/readiness.py": "tests/real/test_taking_over.py",
    "cli/attach_cmd.py": "tests/real/test_taking_over.py",
    "agent/capsule/stopping.py": "tests/real/test_daemons.py",
    "cli/health_cmd.py": "tests/real/test_protection.py",
    "dashboard/protection.py": "tests/dashboard/test_views.py",
    "model/protection.py": "tests/agent/commits/test_protection.py",
    "agent/capsule/agent_process.py": "tests/wrong_input/test_commands.py",
    "agent/commits/dumper.py": "tests/real/test_failures.py",
    "cli/arrived.py": "tests/cli/test_exchange.py",
    "model/token_scope.py": "tests/server/test_authentication.py",
    "operations/debugging.py": "tests/real/test_debug.py",
    "operations/host_debugging.py": "tests/cli/test_debug_cmd.py",
    "operations/foreground_run.py": "tests/real/test_systemd.py",
    "operations/observing.py": "tests/real/test_watching.py",
    "operations/keys.py": "tests/cli/test_key_cmd.py",
    "operations/remotes.py": "tests/cli/test_exchange.py",
    "operations/repairing.py": "tests/cli/test_upkeep.py",
    "operations/retaining.py": "tests/cli/test_upkeep.py",
    "operations/running.py": "tests/server/test_host_operations.py",
    "server/routers/derived.py": "tests/server/test_host_operations.py",
    "cli/podman_args_cmd.py": "tests/watching/test_options.py",
    "cli/watch_cmd.py": "tests/real/test_watching.py",
    "model/watched.py": "tests/real/test_watching.py",
    "operations/watching.py": "tests/real/test_watching.py",
    "watching/docker_engine.py": "tests/real/test_docker.py",
    "containers/docker/target.py": "tests/real/test_docker.py",
    "agent/agent.py": "tests/real/test_failures.py",
    "agent/control/supervised_process.py": "tests/real/test_failures.py",
    "agent/capsule/egress_recorder.py": "tests/real/test_egress.py",
    "agent/capsule/ca_bundles.py": "tests/real/test_egress.py",
    "agent/control/client.py": "tests/agent/control/test_server.py",
    "agent/capsule/starting.py": "tests/real/test_uvicorn.py",
    "agent/capsule/lives.py": "tests/wrong_input/test_commands.py",
    "operations/respawning.py": "tests/chaos/test_new_agent.py",
    "agent/commits/committer.py": "tests/agent/control/test_background.py",
    "agent/failures/exceptions.py": "tests/real/test_debug.py",
    "agent/failures/watch.py": "tests/real/test_failures.py",
    "agent/control/proxy_client.py": "tests/real/test_replay.py",
    "operations/foreground.py": "tests/real/test_systemd.py",
    "agent/capsule/inherited.py": "tests/real/test_systemd.py",
    "agent/capsule/leftovers.py": "tests/real/test_systemd.py",
    "cli/adopt_cmd.py": "tests/real/test_systemd.py",
    "cli/release_cmd.py": "tests/real/test_systemd.py",
    "cli/units.py": "tests/real/test_systemd.py",
    "operations/units.py": "tests/real/test_systemd.py",
    "agent/capsule/launch.py": "tests/wrong_input/test_commands.py",
    "agent/control/proxy_supervisor.py": "tests/real/test_replay.py",
    "check/elf.py": "tests/check/test_command.py",
    "check/finding.py": "tests/check/test_rules.py",
    "check/pythons.py": "tests/check/test_command.py",
    "check/report.py": "tests/check/test_command.py",
    "check/rules/descriptors.py": "tests/check/test_rules.py",
    "check/rules/files.py": "tests/check/test_rules.py",
    "check/rules/making.py": "tests/check/test_rules.py",
    "check/rules/memory.py": "tests/check/test_rules.py",
    "check/rules/processes.py": "tests/check/test_rules.py",
    "check/rules/sockets.py": "tests/check/test_rules.py",
    "check/snapshot.py": "tests/check/test_reading.py",
    "cli/check_cmd.py": "tests/real/test_check.py",
    "operations/checking.py": "tests/real/test_check.py",
    "cli/app.py": "tests/cli/test_help.py",
    "cli/bars.py": "tests/cli/test_terminal.py",
    "cli/audit_cmd.py": "tests/cli/test_token_cmd.py",
    "cli/commit_cmd.py": "tests/cli/test_empty_home.py",
    "cli/dashboard_cmd.py": "tests/dashboard/test_serving.py",
    "dashboard/acting.py": "tests/dashboard/test_views.py",
    "dashboard/app.py": "tests/dashboard/test_views.py",
    "dashboard/asking.py": "tests/dashboard/test_views.py",
    "dashboard/commitlist.py": "tests/dashboard/test_views.py",
    "dashboard/exchange.py": "tests/dashboard/test_journey.py",
    "dashboard/frames.py": "tests/dashboard/test_lanes.py",
    "dashboard/look.py": "tests/dashboard/test_lanes.py",
    "dashboard/paging.py": "tests/dashboard/test_views.py",
    "dashboard/refusals.py": "tests/dashboard/test_views.py",
    "dashboard/runlist.py": "tests/dashboard/test_views.py",
    "dashboard/verdicts.py": "tests/dashboard/test_views.py",
    "dashboard/working.py": "tests/dashboard/test_views.py",
    "dashboard/views/check.py": "tests/dashboard/test_views.py",
    "dashboard/views/branches.py": "tests/dashboard/test_views.py",
    "dashboard/views/commit.py": "tests/dashboard/test_views.py",
    "dashboard/views/commits.py": "tests/dashboard/test_views.py",
    "dashboard/views/incident.py": "tests/dashboard/test_views.py",
    "dashboard/views/incidents.py": "tests/dashboard/test_views.py",
    "dashboard/views/run.py": "tests/dashboard/test_views.py",
    "dashboard/views/runs.py": "tests/dashboard/test_views.py",
    "dashboard/views/storage.py": "tests/dashboard/test_views.py",
    "cli/delete_cmd.py": "tests/cli/test_delete.py",
    "cli/inspect_cmd.py": "tests/real/test_inspection.py",
    "cli/eval_cmd.py": "tests/real/test_inspection.py",
    "cli/diff_cmd.py": "tests/real/test_inspection.py",
    "operations/inspections.py": "tests/real/test_inspection.py",
    "operations/differences.py": "tests/real/test_inspection.py",
    "inspection/state.py": "tests/real/test_inspection.py",
    "inspection/reading.py": "tests/real/test_inspection.py",
    "inspection/memory_changes.py": "tests/real/test_inspection.py",
    "inspection/words.py": "tests/inspection/test_descriptors.py",
    "inspection/python/branches.py": "tests/real/test_inspection.py",
    "inspection/python/calling.py": "tests/inspection/python/test_asking.py",
    "inspection/python/values.py": "tests/real/test_inspection.py",
    "server/routers/inspections.py": "tests/server/test_routes.py",
    "dashboard/inside.py": "tests/dashboard/test_views.py",
    "cli/export_cmd.py": "tests/cli/test_exchange.py",
    "cli/import_cmd.py": "tests/cli/test_exchange.py",
    "cli/pull_cmd.py": "tests/cli/test_exchange.py",
    "cli/push_cmd.py": "tests/cli/test_exchange.py",
    "cli/exec_cmd.py": "tests/cli/test_empty_home.py",
    "cli/gc_cmd.py": "tests/cli/test_upkeep.py",
    "cli/incidents_cmd.py": "tests/cli/test_listing.py",
    "cli/log_cmd.py": "tests/cli/test_listing.py",
    "cli/logs_cmd.py": "tests/cli/test_empty_home.py",
    "cli/ps_cmd.py": "tests/cli/test_empty_home.py",
    "cli/repair_cmd.py": "tests/cli/test_upkeep.py",
    "cli/replay_cmd.py": "tests/cli/test_replay_words.py",
    "cli/reproduce_cmd.py": "tests/cli/test_reproduce_words.py",
    "cli/restore_cmd.py": "tests/real/test_seal.py",
    "cli/retain_cmd.py": "tests/cli/test_upkeep.py",
    "cli/run_cmd.py": "tests/cli/test_empty_home.py",
    "cli/show_cmd.py": "tests/cli/test_listing.py",
    "cli/stacks.py": "tests/cli/test_replay_words.py",
    "cli/stop_cmd.py": "tests/cli/test_empty_home.py",
    "cli/store_cmd.py": "tests/cli/test_upkeep.py",
    "cli/tag_cmd.py": "tests/cli/test_listing.py",
    "cli/verify_cmd.py": "tests/cli/test_upkeep.py",
    "model/quantities.py": "tests/cli/test_terminal.py",
    "operations/__main__.py": "tests/operations/test_subprocess_runner.py",
    "operations/branches.py": "tests/cli/test_empty_home.py",
    "operations/catalogue.py": "tests/operations/test_subprocess_runner.py",
    "operations/incident_detail.py": "tests/real/test_show.py",
    "operations/commits.py": "tests/cli/test_delete.py",
    "operations/committing.py": "tests/wrong_input/test_targets.py",
    "operations/exports.py": "tests/cli/test_exchange.py",
    "operations/fixtures.py": "tests/real/test_fixture.py",
    "operations/health.py": "tests/doctor/test_doctor_cmd.py",
    "operations/incidents.py": "tests/cli/test_listing.py",
    "operations/operation.py": "tests/operations/test_subprocess_runner.py",
    "operations/policies.py": "tests/cli/test_replay_words.py",
    "operations/progress.py": "tests/operations/test_subprocess_runner.py",
    "operations/replays.py": "tests/cli/test_replay_words.py",
    "operations/reproductions.py": "tests/cli/test_reproduce_words.py",
    "operations/restoring.py": "tests/real/test_seal.py",
    "operations/target_summary.py": "tests/dashboard/test_views.py",
    "operations/redaction.py": "tests/incidents/report/test_reading.py",
    "operations/recordings.py": "tests/server/test_routes.py",
    "operations/runs.py": "tests/server/test_routes.py",
    "incidents/runs.py": "tests/incidents/test_kept_runs.py",
    "cli/mcp_cmd.py": "tests/mcp/test_server.py",
    "mcp/acting.py": "tests/mcp/test_server.py",
    "mcp/http.py": "tests/server/test_mcp.py",
    "mcp/looking.py": "tests/mcp/test_server.py",
    "mcp/refusals.py": "tests/mcp/test_server.py",
    "mcp/server.py": "tests/mcp/test_server.py",
    "mcp/trail.py": "tests/server/test_mcp.py",
    "mcp/stories.py": "tests/mcp/test_server.py",
    "cli/serve_cmd.py": "tests/server/test_routes.py",
    "server/application.py": "tests/server/test_routes.py",
    "server/routers/audit.py": "tests/server/test_routes.py",
    "server/routers/branches.py": "tests/server/test_routes.py",
    "server/routers/commits.py": "tests/server/test_routes.py",
    "server/routers/exports.py": "tests/server/test_routes.py",
    "server/routers/fixtures.py": "tests/server/test_routes.py",
    "server/routers/health.py": "tests/server/test_routes.py",
    "server/routers/incidents.py": "tests/server/test_routes.py",
    "server/routers/provided.py": "tests/server/test_routes.py",
    "server/routers/recordings.py": "tests/server/test_routes.py",
    "server/routers/runs.py": "tests/server/test_routes.py",
    "server/routers/storage.py": "tests/server/test_routes.py",
    "server/routers/targets.py": "tests/server/test_routes.py",
    "server/routers/tasks.py": "tests/server/test_routes.py",
    "operations/storage.py": "tests/cli/test_upkeep.py",
    "operations/tags.py": "tests/cli/test_listing.py",
    "operations/targets.py": "tests/cli/test_empty_home.py",
    "server/database.py": "tests/server/test_credentials.py",
    "server/task_kinds.py": "tests/real/test_tasks_of_operations.py",
    "server/task.py": "tests/server/test_task_store.py",
    "server/task_engine.py": "tests/server/test_tasks_survive.py",
    "server/tasks.py": "tests/server/test_tasks_survive.py",
    "doctor/checklist.py": "tests/doctor/test_doctor_cmd.py",
    "doctor/finding.py": "tests/doctor/test_doctor_cmd.py",
    "doctor/scratch.py": "tests/doctor/test_probes.py",
    "containers/podman/command.py": "tests/containers/podman/test_container.py",
    "containers/podman/commit.py": "tests/real/test_containers.py",
    "containers/podman/target.py": "tests/real/test_containers.py",
    "sandbox/port_forward_main.py": "tests/real/test_seal.py",
    "sandbox/port_forward.py": "tests/real/test_containers.py",
    "agent/capsule/file_tracking.py": "tests/real/test_files.py",
    "sandbox/preserved_files.py": "tests/real/test_files.py",
    "sandbox/rings.py": "tests/real/test_debug.py",
    "containers/podman/restore/criu_script.py": "tests/real/test_containers.py",
    "containers/podman/restore/images.py": "tests/real/test_containers.py",
    "containers/podman/restore/mounts.py": "tests/real/test_containers.py",
    "containers/podman/restore/restoring.py": "tests/real/test_containers.py",
    "operations/containers.py": "tests/real/test_containers.py",
    "store/new_files.py": "tests/store/test_contents.py",
    "checkpoint/dump.py": "tests/real/test_kinds.py",
    "checkpoint/dumped.py": "tests/real/test_kinds.py",
    "checkpoint/file_entries.py": "tests/store/test_layers.py",
    "checkpoint/kernel_cache.py": "tests/doctor/test_probes.py",
    "checkpoint/file_layers.py": "tests/store/test_layers.py",
    "checkpoint/open_files.py": "tests/real/test_attach.py",
    "checkpoint/target.py": "tests/wrong_input/test_targets.py",
    "checkpoint/inotify_watches.py": "tests/real/test_limits.py",
    "containers/archive/compression.py": "tests/remotes/test_tar_files.py",
    "containers/archive/descriptions.py": "tests/remotes/test_tar_files.py",
    "containers/archive/exporting.py": "tests/remotes/test_checkpoint.py",
    "containers/archive/importing.py": "tests/remotes/test_checkpoint.py",
    "containers/archive/validation.py": "tests/remotes/test_tar_files.py",
    "containers/archive/unpacking.py": "tests/remotes/test_tar_files.py",
    "remotes/envelope.py": "tests/remotes/test_archive.py",
    "remotes/exporting.py": "tests/remotes/test_archive.py",
    "remotes/imported.py": "tests/remotes/test_checkpoint.py",
    "operations/imports.py": "tests/remotes/test_archive.py",
    "remotes/importing.py": "tests/remotes/test_archive.py",
    "remotes/case_file.py": "tests/remotes/test_case_transfer.py",
    "remotes/remote_incidents.py": "tests/real/test_share_incident.py",
    "remotes/incident_records.py": "tests/remotes/test_archived_incidents.py",
    "remotes/references.py": "tests/remotes/test_push.py",
    "remotes/remote_errors.py": "tests/remotes/test_remote.py",
    "remotes/parallel.py": "tests/remotes/test_breaks.py",
    "fixture/calculator.py": "tests/fixture/test_agreement.py",
    "fixture/candidates.py": "tests/fixture/test_agreement.py",
    "fixture/checking.py": "tests/fixture/test_building.py",
    "fixture/value_choice.py": "tests/fixture/test_solving.py",
    "fixture/combinations.py": "tests/fixture/test_agreement.py",
    "fixture/json_composing.py": "tests/fixture/test_postgresql.py",
    "fixture/conflicts.py": "tests/fixture/test_solving.py",
    "fixture/constraints.py": "tests/fixture/test_solving.py",
    "fixture/engines.py": "tests/fixture/test_building.py",
    "fixture/grouping.py": "tests/fixture/test_solving.py",
    "fixture/logic.py": "tests/fixture/test_agreement.py",
    "fixture/pgserver.py": "tests/fixture/test_postgresql.py",
    "fixture/pgtypes.py": "tests/fixture/test_fromevents.py",
    "fixture/pgwire.py": "tests/fixture/test_postgresql.py",
    "fixture/query_rows.py": "tests/fixture/test_solving.py",
    "fixture/row_assignment.py": "tests/fixture/test_solving.py",
    "fixture/planning/expressions.py": "tests/fixture/test_plans.py",
    "fixture/planning/outputs.py": "tests/fixture/test_plans.py",
    "fixture/planning/reads.py": "tests/fixture/test_plans.py",
    "fixture/planning/scope.py": "tests/fixture/test_plans.py",
    "fixture/planning/sources.py": "tests/fixture/test_plans.py",
    "fixture/planning/writes.py": "tests/fixture/test_solving.py",
    "fixture/recorded.py": "tests/fixture/test_fromevents.py",
    "fixture/schema.py": "tests/fixture/test_solving.py",
    "fixture/sqlite.py": "tests/fixture/test_building.py",
    "fixture/sqlitedialect.py": "tests/fixture/test_solving.py",
    "fixture/wallclock.py": "tests/fixture/test_solving.py",
    "fixture/backtracking.py": "tests/fixture/test_solving.py",
    "fixture/write_effects.py": "tests/fixture/test_solving.py",
    "images/pagemap.py": "tests/store/test_runs.py",
    "images/processes.py": "tests/remotes/test_checkpoint.py",
    "kernel/capabilities.py": "tests/images/test_rights.py",
    "kernel/loopback.py": "tests/kernel/test_namespaces.py",
    "kernel/nfqueue.py": "tests/proxies/test_recorder.py",
    "kernel/tcprepair.py": "tests/real/test_egress.py",
    "kernel/ptrace.py": "tests/signals/test_tracer.py",
    "kernel/unixpath.py": "tests/agent/control/test_server.py",
    "model/branch.py": "tests/model/test_values.py",
    "model/incident.py": "tests/model/test_values.py",
    "model/launch.py": "tests/incidents/test_evidence.py",
    "model/outcome.py": "tests/model/test_values.py",
    "model/reproduction.py": "tests/replay/fresh/test_judge.py",
    "model/value.py": "tests/model/test_values.py",
    "proxies/egress/authority.py": "tests/proxies/test_tls.py",
    "recording/certificates.py": "tests/proxies/test_tls.py",
    "recording/events.py": "tests/recording/test_writer.py",
    "recording/layout.py": "tests/recording/test_writer.py",
    "proxies/listeners.py": "tests/agent/capsule/test_listener.py",
    "proxies/marks.py": "tests/proxies/test_recorder.py",
    "recording/reader.py": "tests/recording/test_writer.py",
    "replay/debug/session.py": "tests/real/test_debug.py",
    "replay/debug/outcome.py": "tests/real/test_debug.py",
    "replay/inprocess_events.py": "tests/replay/test_answers.py",
    "replay/placeholders.py": "tests/replay/test_verdict.py",
    "replay/difference.py": "tests/replay/test_verdict.py",
    "replay/replay_input.py": "tests/real/test_replay.py",
    "mcp/tools.py": "tests/mcp/test_server.py",
    "store/pages/size.py": "tests/cli/test_start.py",
    "replay/deaths.py": "tests/real/test_verdicts.py",
    "images/registers.py": "tests/real/test_verdicts.py",
    "replay/replay.py": "tests/real/test_replay.py",
    "replay/fresh/attempt.py": "tests/real/test_reproduce.py",
    "replay/fresh/evidence.py": "tests/real/test_reproduce.py",
    "replay/fresh/life.py": "tests/real/test_reproduce.py",
    "replay/fresh/raised.py": "tests/real/test_reproduce.py",
    "replay/fresh/repository.py": "tests/replay/fresh/test_tree.py",
    "replay/fresh/sending.py": "tests/real/test_reproduce.py",
    "replay/fresh/waiting.py": "tests/real/test_reproduce.py",
    "sandbox/capsule_network.py": "tests/proxies/test_recorder.py",
    "replay/stubs/process.py": "tests/real/test_stubs.py",
    "replay/stubs/lifecycle.py": "tests/real/test_stubs.py",
    "sandbox/branch.py": "tests/real/test_kinds.py",
    "sandbox/restoring.py": "tests/real/test_kinds.py",
    "sandbox/committed_numbers.py": "tests/real/test_inode_numbers.py",
    "sandbox/restore_request.py": "tests/real/test_kinds.py",
    "sandbox/branch_plan.py": "tests/real/test_kinds.py",
    "sandbox/host_root.py": "tests/real/test_kinds.py",
    "containers/restore/images.py": "tests/real/test_boxes.py",
    "containers/restore/restoring.py": "tests/real/test_boxes.py",
    "sandbox/builder.py": "tests/real/test_kinds.py",
    "containers/restore/binds.py": "tests/real/test_boxes.py",
    "containers/restore/container_root.py": "tests/real/test_boxes.py",
    "containers/restore/making.py": "tests/real/test_boxes.py",
    "sandbox/init_process.py": "tests/real/test_seal.py",
    "sandbox/branch_root.py": "tests/real/test_kinds.py",
    "sandbox/cgroups.py": "tests/real/test_sandbox.py",
    "sandbox/confinement.py": "tests/real/test_hostile.py",
    "sandbox/lazy/daemon.py": "tests/real/test_lazy.py",
    "sandbox/lazy/handover.py": "tests/real/test_lazy.py",
    "sandbox/lazy/keeper.py": "tests/real/test_lazy.py",
    "sandbox/lazy/lifeline.py": "tests/real/test_lazy.py",
    "sandbox/lazy/pager.py": "tests/real/test_lazy.py",
    "sandbox/lazy/server.py": "tests/real/test_lazy.py",
    "sandbox/lazy/space.py": "tests/real/test_lazy.py",
    "sandbox/lazy/state.py": "tests/real/test_lazy.py",
    "sandbox/sinks.py": "tests/real/test_kinds.py",
    "sandbox/tcp_peers.py": "tests/real/test_uvicorn.py",
    "sandbox/proc_lockdown.py": "tests/real/test_seal.py",
    "sandbox/publish.py": "tests/real/test_kinds.py",
    "sandbox/rootfs.py": "tests/kernel/test_points.py",
    "sandbox/seal.py": "tests/real/test_seal.py",
    "sandbox/service_start.py": "tests/real/test_kinds.py",
    "store/internals.py": "tests/maintenance/test_verify.py",
    "store/bundle.py": "tests/store/test_damage.py",
    "store/transfer.py": "tests/remotes/test_pull.py",
    "store/atomic_io.py": "tests/store/test_crashes.py",
    "store/index_recovery.py": "tests/store/test_crashes.py",
    "store/images.py": "tests/store/test_series.py",
    "store/image_cache.py": "tests/store/test_series.py",
    "store/lock.py": "tests/store/test_processes.py",
    "store/lookup.py": "tests/store/test_refs.py",
    "store/manifests.py": "tests/model/test_commit.py",
    "store/objects.py": "tests/store/test_damage.py",
    "store/pages/page_reader.py": "tests/store/test_readahead.py",
    "store/pages/packcheck.py": "tests/maintenance/test_verify.py",
    "store/transfer_parts.py": "tests/remotes/test_push.py",
    "store/pages/xor_bases.py": "tests/store/test_series.py",
    "store/pages/page_diff.py": "tests/store/test_series.py",
    "store/pages/ingest.py": "tests/store/test_series.py",
    "store/pages/parent_cache.py": "tests/store/test_series.py",
    "store/pages/materialize.py": "tests/store/test_series.py",
    "store/pages/numpy_threads.py": "tests/store/test_processes.py",
    "store/pages/pagesink.py": "tests/store/test_series.py",
    "store/pages/batch.py": "tests/store/test_series.py",
    "store/pages/packfile.py": "tests/store/test_packs.py",
    "store/pages/packreader.py": "tests/store/test_packs.py",
    "store/pages/packwriter.py": "tests/store/test_packs.py",
    "store/pages/placement.py": "tests/store/test_damage.py",
    "store/pages/parent_readback.py": "tests/store/test_series.py",
    "store/pages/repack.py": "tests/store/test_series.py",
    "store/pages/sealing.py": "tests/store/test_packs.py",
    "store/staging.py": "tests/store/test_store.py",
    "store/sweep.py": "tests/store/test_damage.py",
    "store/tags.py": "tests/store/test_refs.py",
    "store/ingested.py": "tests/store/test_store.py",
    "store/layer_checksums.py": "tests/store/test_layer_cache.py",
    "incidents/checksums.py": "tests/maintenance/test_incident_check.py",
    "store/disk_errors.py": "tests/store/test_disk_full.py",
    "maintenance/condemned.py": "tests/maintenance/test_gc.py",
    "maintenance/frame_usage.py": "tests/maintenance/test_verify.py",
    "maintenance/problems.py": "tests/maintenance/test_verify.py",
    "maintenance/references.py": "tests/maintenance/test_gc.py",
    "maintenance/usage.py": "tests/maintenance/test_stats.py",
    "maintenance/source.py": "tests/maintenance/test_repair.py",
    "maintenance/stats_page.py": "tests/maintenance/test_stats.py",
    "signals/release.py": "tests/signals/test_held.py",
    "protocols/call.py": "tests/protocols/test_pool.py",
    "protocols/http/asking.py": "tests/protocols/test_http.py",
    "protocols/http/misses.py": "tests/protocols/test_http.py",
    "protocols/http/protocol.py": "tests/protocols/test_http.py",
    "protocols/http/reading.py": "tests/protocols/test_http.py",
    "protocols/http/session.py": "tests/protocols/test_http.py",
    "protocols/redis/commands.py": "tests/protocols/test_redis_stub.py",
    "protocols/redis/effects.py": "tests/protocols/test_redis_stub.py",
    "protocols/redis/housekeeping.py": "tests/protocols/test_redis_stub.py",
    "protocols/redis/protocol.py": "tests/protocols/test_redis_stub.py",
    "protocols/redis/reading.py": "tests/protocols/test_redis_stub.py",
    "protocols/redis/session.py": "tests/protocols/test_redis_stub.py",
    "protocols/redis/state.py": "tests/protocols/test_redis_stub.py",
    "protocols/resuming.py": "tests/protocols/test_http.py",
    "protocols/timing.py": "tests/protocols/test_opaque.py",
    "protocols/postgres/actions.py": "tests/protocols/test_postgres_session.py",
    "protocols/postgres/answers.py": "tests/protocols/test_postgres_session.py",
    "protocols/postgres/statement_state.py": "tests/protocols/test_postgres_session.py",
    "protocols/postgres/calls.py": "tests/protocols/test_postgres_session.py",
    "protocols/postgres/framing.py": "tests/protocols/test_postgres_framing.py",
    "protocols/postgres/builtin_answers.py": "tests/protocols/test_postgres_session.py",
    "protocols/postgres/server_info.py": "tests/protocols/test_postgres_session.py",
    "protocols/postgres/messages.py": "tests/protocols/test_postgres_framing.py",
    "protocols/postgres/answer_parts.py": "tests/protocols/test_postgres_session.py",
    "protocols/postgres/protocol.py": "tests/protocols/test_postgres_session.py",
    "protocols/postgres/resuming.py": "tests/protocols/test_postgres_programs.py",
    "protocols/postgres/session.py": "tests/protocols/test_postgres_session.py",
    "protocols/postgres/statements.py": "tests/protocols/test_postgres_framing.py",
    "protocols/postgres/dialogue_steps.py": "tests/protocols/test_postgres_session.py",
    "protocols/postgres/values.py": "tests/protocols/test_postgres_programs.py",
    "protocols/session.py": "tests/protocols/test_pool.py",
    "signals/tracing.py": "tests/signals/test_followed.py",
}
# Rooms whose parts are tested through their door.
THROUGH_THE_DOOR = {
    "doctor/probes": "tests/doctor/test_probes.py",
    "proxies/": "tests/proxies/test_proxy.py",
    "recording/_": "tests/proxies/test_proxy.py",
}


def modules() -> list[str]:
    found = (path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))
    return sorted(path for path in found if not path.endswith(GENERATED))


MODULES = modules()
# One test looks at all modules and lists those it does not like: a test of its own for each of some hundred took longer
# than looking at them.
TREES = {path: ast.parse((SOURCE / path).read_text()) for path in MODULES}


def name_of(path: str) -> str:
    return ".".join(
        ("relive", *path.removesuffix(".py").removesuffix("__init__").strip("/").split("/"))
    ).rstrip(".")


def test_each_opens_with_a_docstring():
    assert MODULES
    openings = {
        path: (ast.get_docstring(tree) or "").partition("\n")[0].strip() for path, tree in TREES.items()
    }
    assert [path for path, opening in openings.items() if not opening] == []


def test_every_public_name_that_one_lists_is_there_and_the_list_is_in_order():
    wrong = []
    for path in MODULES:
        module = importlib.import_module(name_of(path))
        listed = getattr(module, "__all__", None)
        if listed is not None:
            wrong += [f"{path}: {name} is not there" for name in listed if not hasattr(module, name)]
            wrong += [f"{path}: a name is listed twice"] * (len(set(listed)) != len(listed))
    assert wrong == []


def test_a_module_that_offers_something_lists_it():
    """Names that do not begin with ``_`` and are defined in it; but for a package's door, which may offer nothing."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

    def offers(tree: ast.Module) -> bool:
        return any(isinstance(node, kinds) and not node.name.startswith("_") for node in tree.body)

    def has_list(tree: ast.Module) -> bool:
        return any(
            isinstance(node, ast.Assign)
            and any(getattr(target, "id", "") == "__all__" for target in node.targets)
            for node in tree.body
        )

    assert [path for path, tree in TREES.items() if offers(tree) and not has_list(tree)] == []


def where_tested(path: str, files: set[str]) -> str | None:
    """The test file of a module, one in which it is said to be tested, or None."""
    name = Path(path).stem
    own = f"test_{name.lstrip('_')}.py"
    if own in files:
        return own
    through = next((tests for begin, tests in THROUGH_THE_DOOR.items() if path.startswith(begin)), None)
    return TESTED_IN.get(path, through)


def test_each_has_a_test_file_or_a_reason_to_have_none():
    """Add tests/**/test_NAME.py, or say in TESTED_IN where it is tested. What is behind a package's door is tested."""
    files = {path.name for path in TESTS.rglob("test_*.py")}
    tested = {
        path: where_tested(path, files)
        for path in MODULES
        if Path(path).name != "__init__.py" or "/" not in path
    }
    assert [path for path, where in tested.items() if where is None] == []
    named = {where for where in tested.values() if where is not None and where.startswith("tests/")}
    assert [where for where in sorted(named) if not (TESTS.parent / where).exists()] == []


def test_the_table_names_only_what_is_there():
    assert [path for path in TESTED_IN if not (SOURCE / path).exists()] == []


def test_none_holds_a_note_of_work_left_to_do():
    notes = re.compile(r"\bTODO\b|\bFIXME\b|\bXXX\b")
    assert [path for path in MODULES if notes.search((SOURCE / path).read_text())] == []


def test_none_names_a_file_where_everybody_may_make_one():
    """What is made for a while outside of RELIVE_HOME has a name that nobody knows before (``tempfile``)."""
    shared = re.compile(r"/(var/)?tmp\b|\bmktemp\(")
    every = [SOURCE / path for path in MODULES] + [*(TESTS.parent / "native").rglob("*.[ch]")]
    assert [path for path in every if shared.search(path.read_text())] == []
