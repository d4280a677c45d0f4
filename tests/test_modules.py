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
    "__init__.py": "it holds the version only",
    "agent/__main__.py": "tests/real/test_failures.py",
    "sandbox/numbering.py": "tests/sandbox/test_inodefs.py",
    "agent/containers/__main__.py": "tests/real/test_watching.py",
    "agent/containers/agent.py": "tests/real/test_watching.py",
    "agent/containers/engine.py": "tests/real/test_watching.py",
    "agent/containers/engines.py": "tests/real/test_watching.py",
    "agent/containers/found.py": "tests/real/test_watching.py",
    "agent/containers/launch.py": "tests/real/test_watching.py",
    "agent/containers/moments.py": "tests/agent/containers/test_output.py",
    "agent/lean.py": "tests/agent/test_memory_use.py",
    "kernel/heap.py": "tests/agent/test_memory_use.py",
    "agent/logfiles.py": "tests/agent/processes/test_output.py",
    "operations/reviving.py": "tests/real/test_front.py",
    "agent/processes/process.py": "tests/real/test_watched_services.py",
    "agent/processes/running.py": "tests/real/test_watched_services.py",
    "agent/processes/taking.py": "tests/real/test_watched_services.py",
    "agent/processes/port.py": "tests/real/test_watched_services.py",
    "agent/processes/answering.py": "tests/real/test_watched_services.py",
    "engine/watchedfiles.py": "tests/real/test_watched_services.py",
    "kernel/fanotify.py": "tests/real/test_watched_services.py",
    "kernel/procevents.py": "tests/real/test_watched_services.py",
    "kernel/sklookup.py": "tests/real/test_watched_services.py",
    "record/standin.py": "tests/real/test_watched_services.py",
    "agent/containers/tending.py": "tests/real/test_watching.py",
    "agent/containers/life.py": "tests/real/test_watching.py",
    "agent/containers/podman.py": "tests/real/test_watching.py",
    "agent/containers/start.py": "tests/real/test_watching.py",
    "agent/process.py": "tests/real/test_failures.py",
    "agent/readiness.py": "tests/real/test_taking_over.py",
    "cli/attach_cmd.py": "tests/real/test_taking_over.py",
    "agent/stopping.py": "tests/real/test_daemons.py",
    "cli/health_cmd.py": "tests/real/test_protection.py",
    "dashboard/protection.py": "tests/dashboard/test_views.py",
    "model/protection.py": "tests/agent/test_protection.py",
    "agent/starting.py": "tests/wrong_input/test_commands.py",
    "agent/taker.py": "tests/real/test_failures.py",
    "cli/podman_args_cmd.py": "tests/agent/containers/test_options.py",
    "cli/watch_cmd.py": "tests/real/test_watching.py",
    "model/watched.py": "tests/real/test_watching.py",
    "operations/watching.py": "tests/real/test_watching.py",
    "agent/containers/docker.py": "tests/real/test_docker.py",
    "engine/docker/target.py": "tests/real/test_docker.py",
    "agent/agent.py": "tests/real/test_failures.py",
    "agent/attendant.py": "tests/real/test_failures.py",
    "agent/border.py": "tests/real/test_egress.py",
    "agent/trust.py": "tests/real/test_egress.py",
    "agent/asking.py": "tests/agent/test_control.py",
    "agent/capsule.py": "tests/real/test_uvicorn.py",
    "agent/lives.py": "tests/wrong_input/test_commands.py",
    "operations/tending.py": "tests/chaos/test_new_agent.py",
    "agent/committer.py": "tests/agent/test_tasks.py",
    "agent/exceptions.py": "tests/real/test_debug.py",
    "agent/failures.py": "tests/real/test_failures.py",
    "agent/gate.py": "tests/real/test_replay.py",
    "operations/foreground.py": "tests/real/test_systemd.py",
    "agent/handed.py": "tests/real/test_systemd.py",
    "agent/leavings.py": "tests/real/test_systemd.py",
    "cli/adopt_cmd.py": "tests/real/test_systemd.py",
    "cli/release_cmd.py": "tests/real/test_systemd.py",
    "cli/units.py": "tests/real/test_systemd.py",
    "operations/units.py": "tests/real/test_systemd.py",
    "agent/launch.py": "tests/wrong_input/test_commands.py",
    "agent/recorder.py": "tests/real/test_replay.py",
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
    "operations/__main__.py": "tests/operations/test_apart.py",
    "operations/branches.py": "tests/cli/test_empty_home.py",
    "operations/catalogue.py": "tests/operations/test_apart.py",
    "operations/accounts.py": "tests/real/test_show.py",
    "operations/commits.py": "tests/cli/test_delete.py",
    "operations/committing.py": "tests/wrong_input/test_targets.py",
    "operations/exports.py": "tests/cli/test_exchange.py",
    "operations/fixtures.py": "tests/real/test_fixture.py",
    "operations/health.py": "tests/doctor/test_doctor_cmd.py",
    "operations/incidents.py": "tests/cli/test_listing.py",
    "operations/operation.py": "tests/operations/test_apart.py",
    "operations/policies.py": "tests/cli/test_replay_words.py",
    "operations/progress.py": "tests/operations/test_apart.py",
    "operations/replays.py": "tests/cli/test_replay_words.py",
    "operations/reproductions.py": "tests/cli/test_reproduce_words.py",
    "operations/restoring.py": "tests/real/test_seal.py",
    "operations/committed.py": "tests/dashboard/test_views.py",
    "operations/reading.py": "tests/analyse/test_reading.py",
    "operations/recordings.py": "tests/coordinator/test_routes.py",
    "operations/runs.py": "tests/coordinator/test_routes.py",
    "store/runs.py": "tests/store/test_kept_runs.py",
    "cli/mcp_cmd.py": "tests/mcp/test_server.py",
    "mcp/acting.py": "tests/mcp/test_server.py",
    "mcp/http.py": "tests/coordinator/test_mcp.py",
    "mcp/looking.py": "tests/mcp/test_server.py",
    "mcp/refusals.py": "tests/mcp/test_server.py",
    "mcp/server.py": "tests/mcp/test_server.py",
    "mcp/trail.py": "tests/coordinator/test_mcp.py",
    "mcp/stories.py": "tests/mcp/test_server.py",
    "cli/serve_cmd.py": "tests/coordinator/test_routes.py",
    "coordinator/application.py": "tests/coordinator/test_routes.py",
    "coordinator/routers/audit.py": "tests/coordinator/test_routes.py",
    "coordinator/routers/branches.py": "tests/coordinator/test_routes.py",
    "coordinator/routers/commits.py": "tests/coordinator/test_routes.py",
    "coordinator/routers/exports.py": "tests/coordinator/test_routes.py",
    "coordinator/routers/fixtures.py": "tests/coordinator/test_routes.py",
    "coordinator/routers/health.py": "tests/coordinator/test_routes.py",
    "coordinator/routers/incidents.py": "tests/coordinator/test_routes.py",
    "coordinator/routers/provided.py": "tests/coordinator/test_routes.py",
    "coordinator/routers/recordings.py": "tests/coordinator/test_routes.py",
    "coordinator/routers/runs.py": "tests/coordinator/test_routes.py",
    "coordinator/routers/storage.py": "tests/coordinator/test_routes.py",
    "coordinator/routers/targets.py": "tests/coordinator/test_routes.py",
    "coordinator/routers/tasks.py": "tests/coordinator/test_routes.py",
    "operations/storage.py": "tests/cli/test_upkeep.py",
    "operations/tags.py": "tests/cli/test_listing.py",
    "operations/targets.py": "tests/cli/test_empty_home.py",
    "coordinator/database.py": "tests/coordinator/test_credentials.py",
    "coordinator/kinds.py": "tests/real/test_tasks_of_operations.py",
    "coordinator/task.py": "tests/coordinator/test_task_store.py",
    "coordinator/task_engine.py": "tests/coordinator/test_tasks_survive.py",
    "coordinator/tasks.py": "tests/coordinator/test_tasks_survive.py",
    "doctor/checklist.py": "tests/doctor/test_doctor_cmd.py",
    "doctor/finding.py": "tests/doctor/test_doctor_cmd.py",
    "doctor/scratch.py": "tests/doctor/test_probes.py",
    "engine/podman/command.py": "tests/engine/podman/test_container.py",
    "engine/podman/commit.py": "tests/real/test_containers.py",
    "engine/podman/target.py": "tests/real/test_containers.py",
    "sandbox/carrier.py": "tests/real/test_seal.py",
    "sandbox/forwarder.py": "tests/real/test_containers.py",
    "agent/following.py": "tests/real/test_files.py",
    "sandbox/kept.py": "tests/real/test_files.py",
    "sandbox/rings.py": "tests/real/test_debug.py",
    "sandbox/podman/criu.py": "tests/real/test_containers.py",
    "sandbox/podman/images.py": "tests/real/test_containers.py",
    "sandbox/podman/mounts.py": "tests/real/test_containers.py",
    "sandbox/podman/restore.py": "tests/real/test_containers.py",
    "operations/containers.py": "tests/real/test_containers.py",
    "store/newfiles.py": "tests/store/test_contents.py",
    "engine/capture.py": "tests/real/test_kinds.py",
    "engine/captured.py": "tests/real/test_kinds.py",
    "engine/criu.py": "tests/real/test_kinds.py",
    "engine/entries.py": "tests/store/test_layers.py",
    "engine/kerndat.py": "tests/doctor/test_probes.py",
    "engine/layers.py": "tests/store/test_layers.py",
    "engine/openfiles.py": "tests/real/test_attach.py",
    "engine/target.py": "tests/wrong_input/test_targets.py",
    "engine/watches.py": "tests/real/test_limits.py",
    "exchange/checkpoint/compression.py": "tests/exchange/test_tarfiles.py",
    "exchange/checkpoint/container.py": "tests/exchange/test_tarfiles.py",
    "exchange/checkpoint/exporting.py": "tests/exchange/test_checkpoint.py",
    "exchange/checkpoint/importing.py": "tests/exchange/test_checkpoint.py",
    "exchange/checkpoint/soundness.py": "tests/exchange/test_tarfiles.py",
    "exchange/checkpoint/unpacking.py": "tests/exchange/test_tarfiles.py",
    "exchange/envelope.py": "tests/exchange/test_archive.py",
    "exchange/exporting.py": "tests/exchange/test_archive.py",
    "exchange/imported.py": "tests/exchange/test_checkpoint.py",
    "operations/imports.py": "tests/exchange/test_archive.py",
    "exchange/importing.py": "tests/exchange/test_archive.py",
    "exchange/casefile.py": "tests/exchange/test_cases.py",
    "exchange/incidents.py": "tests/real/test_share_incident.py",
    "exchange/records.py": "tests/exchange/test_archived_incidents.py",
    "exchange/references.py": "tests/exchange/test_push.py",
    "exchange/refusals.py": "tests/exchange/test_remote.py",
    "exchange/traffic.py": "tests/exchange/test_breaks.py",
    "fixture/calculator.py": "tests/fixture/test_agreement.py",
    "fixture/candidates.py": "tests/fixture/test_agreement.py",
    "fixture/checking.py": "tests/fixture/test_building.py",
    "fixture/choosing.py": "tests/fixture/test_making.py",
    "fixture/combinations.py": "tests/fixture/test_agreement.py",
    "fixture/composing.py": "tests/fixture/test_postgresql.py",
    "fixture/conflicts.py": "tests/fixture/test_making.py",
    "fixture/demands.py": "tests/fixture/test_making.py",
    "fixture/engines.py": "tests/fixture/test_building.py",
    "fixture/grouping.py": "tests/fixture/test_making.py",
    "fixture/logic.py": "tests/fixture/test_agreement.py",
    "fixture/pgserver.py": "tests/fixture/test_postgresql.py",
    "fixture/pgtypes.py": "tests/fixture/test_fromevents.py",
    "fixture/pgwire.py": "tests/fixture/test_postgresql.py",
    "fixture/placements.py": "tests/fixture/test_making.py",
    "fixture/placing.py": "tests/fixture/test_making.py",
    "fixture/planning/expressions.py": "tests/fixture/test_plans.py",
    "fixture/planning/outputs.py": "tests/fixture/test_plans.py",
    "fixture/planning/reads.py": "tests/fixture/test_plans.py",
    "fixture/planning/scope.py": "tests/fixture/test_plans.py",
    "fixture/planning/sources.py": "tests/fixture/test_plans.py",
    "fixture/planning/writes.py": "tests/fixture/test_making.py",
    "fixture/recorded.py": "tests/fixture/test_fromevents.py",
    "fixture/schema.py": "tests/fixture/test_making.py",
    "fixture/sqlite.py": "tests/fixture/test_building.py",
    "fixture/sqlitedialect.py": "tests/fixture/test_making.py",
    "fixture/wallclock.py": "tests/fixture/test_making.py",
    "fixture/ways.py": "tests/fixture/test_making.py",
    "fixture/writing.py": "tests/fixture/test_making.py",
    "images/pagemap.py": "tests/store/test_runs.py",
    "images/processes.py": "tests/exchange/test_checkpoint.py",
    "kernel/capabilities.py": "tests/images/test_rights.py",
    "kernel/loopback.py": "tests/kernel/test_namespaces.py",
    "kernel/nfqueue.py": "tests/record/test_egress.py",
    "kernel/tcprepair.py": "tests/real/test_egress.py",
    "kernel/ptrace.py": "tests/watch/test_tracer.py",
    "kernel/unixpath.py": "tests/agent/test_control.py",
    "model/branch.py": "tests/model/test_values.py",
    "model/incident.py": "tests/model/test_values.py",
    "model/launch.py": "tests/store/test_evidence.py",
    "model/outcome.py": "tests/model/test_values.py",
    "model/reproduction.py": "tests/reproduce/test_judge.py",
    "model/value.py": "tests/model/test_values.py",
    "record/authority.py": "tests/record/test_tls.py",
    "record/certificates.py": "tests/record/test_tls.py",
    "record/events.py": "tests/record/test_log.py",
    "record/layout.py": "tests/record/test_log.py",
    "record/listening.py": "tests/agent/test_front.py",
    "record/passages.py": "tests/record/test_egress.py",
    "record/reading.py": "tests/record/test_log.py",
    "replay/debug.py": "tests/real/test_debug.py",
    "replay/debugoutcome.py": "tests/real/test_debug.py",
    "replay/inside.py": "tests/replay/test_answers.py",
    "replay/placeholders.py": "tests/replay/test_verdict.py",
    "replay/difference.py": "tests/replay/test_verdict.py",
    "replay/case.py": "tests/real/test_replay.py",
    "mcp/tools.py": "tests/mcp/test_server.py",
    "store/pages/size.py": "tests/cli/test_start.py",
    "replay/deaths.py": "tests/real/test_verdicts.py",
    "images/registers.py": "tests/real/test_verdicts.py",
    "replay/replay.py": "tests/real/test_replay.py",
    "reproduce/attempt.py": "tests/real/test_reproduce.py",
    "reproduce/case.py": "tests/real/test_reproduce.py",
    "reproduce/life.py": "tests/real/test_reproduce.py",
    "reproduce/raised.py": "tests/real/test_reproduce.py",
    "reproduce/repository.py": "tests/reproduce/test_tree.py",
    "reproduce/sending.py": "tests/real/test_reproduce.py",
    "reproduce/waiting.py": "tests/real/test_reproduce.py",
    "sandbox/border.py": "tests/record/test_egress.py",
    "replay/stubs/process.py": "tests/real/test_stubs.py",
    "replay/stubs/stage.py": "tests/real/test_stubs.py",
    "sandbox/branch.py": "tests/real/test_kinds.py",
    "sandbox/restoring.py": "tests/real/test_kinds.py",
    "sandbox/request.py": "tests/real/test_kinds.py",
    "sandbox/branch_plan.py": "tests/real/test_kinds.py",
    "sandbox/host_files.py": "tests/real/test_kinds.py",
    "sandbox/container/images.py": "tests/real/test_boxes.py",
    "sandbox/container/restoring.py": "tests/real/test_boxes.py",
    "sandbox/builder.py": "tests/real/test_kinds.py",
    "sandbox/container/binds.py": "tests/real/test_boxes.py",
    "sandbox/container/ground.py": "tests/real/test_boxes.py",
    "sandbox/container/making.py": "tests/real/test_boxes.py",
    "sandbox/firstprocess.py": "tests/real/test_seal.py",
    "sandbox/ground.py": "tests/real/test_kinds.py",
    "sandbox/groups.py": "tests/real/test_sandbox.py",
    "sandbox/proof.py": "tests/real/test_hostile.py",
    "sandbox/lazy/daemon.py": "tests/real/test_lazy.py",
    "sandbox/lazy/handover.py": "tests/real/test_lazy.py",
    "sandbox/lazy/keeper.py": "tests/real/test_lazy.py",
    "sandbox/lazy/lifeline.py": "tests/real/test_lazy.py",
    "sandbox/lazy/pager.py": "tests/real/test_lazy.py",
    "sandbox/lazy/server.py": "tests/real/test_lazy.py",
    "sandbox/lazy/space.py": "tests/real/test_lazy.py",
    "sandbox/lazy/state.py": "tests/real/test_lazy.py",
    "sandbox/outlets.py": "tests/real/test_kinds.py",
    "sandbox/peers.py": "tests/real/test_uvicorn.py",
    "sandbox/procdoors.py": "tests/real/test_seal.py",
    "sandbox/publish.py": "tests/real/test_kinds.py",
    "sandbox/rootfs.py": "tests/kernel/test_points.py",
    "sandbox/seal.py": "tests/real/test_seal.py",
    "sandbox/service.py": "tests/real/test_kinds.py",
    "sandbox/spawn.py": "tests/real/test_kinds.py",
    "store/anatomy.py": "tests/upkeep/test_verify.py",
    "store/bundle.py": "tests/store/test_damage.py",
    "store/deliveries.py": "tests/exchange/test_pull.py",
    "store/durable.py": "tests/store/test_crashes.py",
    "store/following.py": "tests/store/test_crashes.py",
    "store/images.py": "tests/store/test_series.py",
    "store/laidout.py": "tests/store/test_series.py",
    "store/lock.py": "tests/store/test_processes.py",
    "store/lookup.py": "tests/store/test_refs.py",
    "store/manifests.py": "tests/model/test_commit.py",
    "store/objects.py": "tests/store/test_damage.py",
    "store/pages/addressed.py": "tests/store/test_readahead.py",
    "store/pages/packcheck.py": "tests/upkeep/test_verify.py",
    "store/parts.py": "tests/exchange/test_push.py",
    "store/pages/bases.py": "tests/store/test_series.py",
    "store/pages/differ.py": "tests/store/test_series.py",
    "store/pages/ingest.py": "tests/store/test_series.py",
    "store/pages/last.py": "tests/store/test_series.py",
    "store/pages/layout.py": "tests/store/test_series.py",
    "store/pages/numpy_threads.py": "tests/store/test_processes.py",
    "store/pages/pagesink.py": "tests/store/test_series.py",
    "store/pages/window.py": "tests/store/test_series.py",
    "store/pages/packfile.py": "tests/store/test_packs.py",
    "store/pages/packreader.py": "tests/store/test_packs.py",
    "store/pages/packwriter.py": "tests/store/test_packs.py",
    "store/pages/placement.py": "tests/store/test_damage.py",
    "store/pages/readback.py": "tests/store/test_series.py",
    "store/pages/repack.py": "tests/store/test_series.py",
    "store/pages/sealing.py": "tests/store/test_packs.py",
    "store/staging.py": "tests/store/test_store.py",
    "store/sweep.py": "tests/store/test_damage.py",
    "store/tags.py": "tests/store/test_refs.py",
    "store/taken.py": "tests/store/test_store.py",
    "store/treeseal.py": "tests/store/test_trees.py",
    "store/incidentsums.py": "tests/upkeep/test_evidencecheck.py",
    "store/troubles.py": "tests/store/test_disk_full.py",
    "upkeep/condemned.py": "tests/upkeep/test_gc.py",
    "upkeep/frames.py": "tests/upkeep/test_verify.py",
    "upkeep/problems.py": "tests/upkeep/test_verify.py",
    "upkeep/references.py": "tests/upkeep/test_gc.py",
    "upkeep/shares.py": "tests/upkeep/test_stats.py",
    "upkeep/source.py": "tests/upkeep/test_repair.py",
    "upkeep/statspage.py": "tests/upkeep/test_stats.py",
    "watch/release.py": "tests/watch/test_held.py",
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
    "protocols/timing.py": "tests/protocols/test_plain.py",
    "protocols/postgres/acts.py": "tests/protocols/test_postgres_session.py",
    "protocols/postgres/answers.py": "tests/protocols/test_postgres_session.py",
    "protocols/postgres/book.py": "tests/protocols/test_postgres_session.py",
    "protocols/postgres/calls.py": "tests/protocols/test_postgres_session.py",
    "protocols/postgres/framing.py": "tests/protocols/test_postgres_framing.py",
    "protocols/postgres/known.py": "tests/protocols/test_postgres_session.py",
    "protocols/postgres/lore.py": "tests/protocols/test_postgres_session.py",
    "protocols/postgres/messages.py": "tests/protocols/test_postgres_framing.py",
    "protocols/postgres/parts.py": "tests/protocols/test_postgres_session.py",
    "protocols/postgres/protocol.py": "tests/protocols/test_postgres_session.py",
    "protocols/postgres/resuming.py": "tests/protocols/test_postgres_programs.py",
    "protocols/postgres/session.py": "tests/protocols/test_postgres_session.py",
    "protocols/postgres/statements.py": "tests/protocols/test_postgres_framing.py",
    "protocols/postgres/steps.py": "tests/protocols/test_postgres_session.py",
    "protocols/postgres/values.py": "tests/protocols/test_postgres_programs.py",
    "protocols/session.py": "tests/protocols/test_pool.py",
    "watch/tracing.py": "tests/watch/test_followed.py",
}
# Rooms whose parts are tested through their door.
THROUGH_THE_DOOR = {"doctor/probes": "tests/doctor/test_probes.py", "record/_": "tests/record/test_proxy.py"}


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
