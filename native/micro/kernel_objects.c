/* See kernel_objects.h.
 *
 * Of most objects the members that count are named. Of a socket all count but those that are named, which are counters, caches and locks: which
 * options it has is in so many places that one would be forgotten. What counts and need not leads to a look at /proc, and to nothing wrong. */
#include "kernel_objects.h"

#include "kernel_memory.h"
#include "kernel_types.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANGES_MOST = 64 };

/* Members that count: "structure" and then its members, each may be "one|other" of different versions; "?" before it: older ones have none;
 * "!" before it: only whether it is zero. */
static const char *const counting[KINDS][RANGES_MOST] = {
	[TASK] = { "task_struct", "comm", "policy", "rt_priority", "static_prio", "sched_reset_on_fork", "mm", "exit_state", "exit_signal",
		   "pdeath_signal", "personality", "atomic_flags", "pid", "tgid", "real_parent", "children", "group_leader", "thread_pid",
		   "clear_child_tid", "start_boottime", "real_cred", "cred", "fs", "files", "nsproxy", "signal", "sighand",
		   "pending.signal", "sas_ss_sp", "sas_ss_size", "sas_ss_flags", "seccomp", "syscall_dispatch", "robust_list",
		   "?compat_robust_list", "rseq", "rseq_len", "rseq_sig", "?io_uring" },
	[CHILD] = { "task_struct", "sibling", "pid", "start_boottime", "real_parent" },
	[PARENT] = { "task_struct", "tgid", "start_boottime" },
	[SIGNAL] = { "signal_struct", "nr_threads", "shared_pending.signal", "is_child_subreaper", "posix_timers", "?ignored_posix_timers",
		     "real_timer.state", "it_real_incr", "it", "pids", "leader", "tty", "rlim" },
	[ACTIONS] = { "sighand_struct", "action" },
	[MEMORY] = { "mm_struct", "start_code", "end_code", "start_data", "end_data", "start_brk", "start_stack", "arg_start", "arg_end",
		     "env_start", "env_end", "flags", "locked_vm", "membarrier_state", "exe_file" },
	[RIGHTS] = { "cred", "uid", "gid", "suid", "sgid", "euid", "egid", "fsuid", "fsgid", "securebits", "cap_inheritable",
		     "cap_permitted", "cap_effective", "cap_bset", "cap_ambient", "user_ns", "group_info" },
	[DIRECTORIES] = { "fs_struct", "umask", "root", "pwd" },
	[DESCRIPTORS] = { "files_struct", "fdt" },
	[TABLE] = { "fdtable", "max_fds", "fd", "close_on_exec", "open_fds" },
	[OPEN_FILE] = { "file", "f_mode", "f_op", "private_data", "f_inode", "f_flags", "f_owner", "f_path", "f_pos" },
	[OPEN_REGULAR] = { "file", "f_mode", "f_op", "private_data", "f_inode", "f_flags", "f_owner", "f_path" },
	[INODE] = { "inode", "i_mode", "i_rdev", "i_ino", "i_nlink", "i_sb", "i_flctx" },
	[INODE_OF_DIRECTORY] = { "inode", "i_mode", "i_ino", "i_sb", "i_flctx" },
	[LOCKS] = { "file_lock_context", "flc_flock", "flc_posix", "flc_lease" },
	[FILE_SYSTEM] = { "super_block", "s_dev", "s_magic" },
	[NAME] = { "dentry", "d_parent", "d_name", "d_inode", "d_shortname|d_iname", "!d_hash.pprev" },
	[MOUNT] = { "mount", "mnt.mnt_root", "mnt_parent", "mnt_mountpoint", "mnt_id", "!mnt_ns" },
	[SOCKET] = { "socket", "state", "type", "sk", "ops" },
	[PIPE] = { "pipe_inode_info", "max_usage", "ring_size", "readers", "writers" },
};

static const char *const not_counting[][RANGES_MOST] = {
	{ "sock", "__sk_common.skc_refcnt", "__sk_common.skc_node", "__sk_common.skc_incoming_cpu", "__sk_common.skc_tx_queue_mapping",
	  "__sk_common.skc_rx_queue_mapping", "sk_drops", "sk_rx_dst", "sk_rx_dst_ifindex", "sk_rx_dst_cookie", "sk_napi_id", "sk_lock",
	  "sk_forward_alloc", "sk_dst_cache", "sk_txhash", "sk_timer", "sk_callback_lock", "sk_stamp" },
};

static const struct {
	const char *structure, *path;
	enum { NEEDED, MAY_MISS, BEHIND } how; /* BEHIND: an array without a length at the end */
} wanted[MEMBERS] = {
	[TASK_PTRACED] = { "task_struct", "ptraced", NEEDED },
	[TASK_PTRACE_ENTRY] = { "task_struct", "ptrace_entry", NEEDED },
	[TASK_PID] = { "task_struct", "pid", NEEDED },
	[TASK_MEMORY] = { "task_struct", "mm", NEEDED },
	[TASK_SIGNAL] = { "task_struct", "signal", NEEDED },
	[TASK_ACTIONS] = { "task_struct", "sighand", NEEDED },
	[TASK_FILES] = { "task_struct", "files", NEEDED },
	[TASK_DIRECTORIES] = { "task_struct", "fs", NEEDED },
	[TASK_RIGHTS] = { "task_struct", "cred", NEEDED },
	[TASK_OWN_RIGHTS] = { "task_struct", "real_cred", NEEDED },
	[TASK_PARENT] = { "task_struct", "real_parent", NEEDED },
	[TASK_CHILDREN] = { "task_struct", "children.next", NEEDED },
	[TASK_SIBLING] = { "task_struct", "sibling.next", NEEDED },
	[SIGNAL_GROUP_IDS] = { "signal_struct", "pids", NEEDED },
	[SIGNAL_TERMINAL] = { "signal_struct", "tty", NEEDED },
	[SIGNAL_TIMERS] = { "signal_struct", "posix_timers", NEEDED },
	[SIGNAL_THREADS] = { "signal_struct", "nr_threads", NEEDED },
	[MEMORY_BREAK] = { "mm_struct", "brk", NEEDED },
	[MEMORY_PROGRAM] = { "mm_struct", "exe_file", NEEDED },
	[MEMORY_SEQUENCE] = { "mm_struct", "mm_lock_seq", MAY_MISS },
	[MEMORY_FLUSHES] = { "mm_struct", "context.tlb_gen", MAY_MISS },
	[RIGHTS_GROUPS] = { "cred", "group_info", NEEDED },
	[GROUPS_COUNT] = { "group_info", "ngroups", NEEDED },
	[GROUPS_LIST] = { "group_info", "gid", BEHIND },
	[NUMBERS_FIRST] = { "pid", "numbers", BEHIND },
	[DIRECTORIES_ROOT] = { "fs_struct", "root", NEEDED },
	[DIRECTORIES_WORKING] = { "fs_struct", "pwd", NEEDED },
	[DESCRIPTORS_TABLE] = { "files_struct", "fdt", NEEDED },
	[TABLE_MOST] = { "fdtable", "max_fds", NEEDED },
	[TABLE_FILES] = { "fdtable", "fd", NEEDED },
	[TABLE_OPEN] = { "fdtable", "open_fds", NEEDED },
	[TABLE_CLOSING] = { "fdtable", "close_on_exec", NEEDED },
	[FILE_INODE] = { "file", "f_inode", NEEDED },
	[FILE_PATH] = { "file", "f_path", NEEDED },
	[FILE_PRIVATE] = { "file", "private_data", NEEDED },
	[FILE_POSITION] = { "file", "f_pos", NEEDED },
	[FILE_OWNER] = { "file", "f_owner", NEEDED },
	[INODE_MODE] = { "inode", "i_mode", NEEDED },
	[INODE_DEVICE] = { "inode", "i_rdev", NEEDED },
	[INODE_SIZE] = { "inode", "i_size", NEEDED },
	[INODE_LINKS] = { "inode", "i_nlink", NEEDED },
	[INODE_LOCKS] = { "inode", "i_flctx", NEEDED },
	[INODE_FILE_SYSTEM] = { "inode", "i_sb", NEEDED },
	[FILE_SYSTEM_MAGIC] = { "super_block", "s_magic", NEEDED },
	[LOCKS_FLOCK] = { "file_lock_context", "flc_flock.next", NEEDED },
	[LOCKS_POSIX] = { "file_lock_context", "flc_posix.next", NEEDED },
	[LOCKS_LEASE] = { "file_lock_context", "flc_lease.next", NEEDED },
	[PATH_MOUNT] = { "path", "mnt", NEEDED },
	[PATH_NAME] = { "path", "dentry", NEEDED },
	[NAME_PARENT] = { "dentry", "d_parent", NEEDED },
	[NAME_TEXT] = { "dentry", "d_name.name", NEEDED },
	[NAME_LENGTH] = { "dentry", "d_name.len", NEEDED },
	[NAME_SHORT] = { "dentry", "d_shortname|d_iname", NEEDED },
	[MOUNT_INNER] = { "mount", "mnt", NEEDED },
	[MOUNT_ROOT] = { "mount", "mnt.mnt_root", NEEDED },
	[MOUNT_PARENT] = { "mount", "mnt_parent", NEEDED },
	[MOUNT_POINT] = { "mount", "mnt_mountpoint", NEEDED },
	[SOCKET_STATE] = { "socket", "sk", NEEDED },
	[SOCK_FAMILY] = { "sock", "__sk_common.skc_family", NEEDED },
	[SOCK_STATE] = { "sock", "__sk_common.skc_state", NEEDED },
	[SOCK_PROTOCOL] = { "sock", "sk_protocol", NEEDED },
	[SOCK_PROTO] = { "sock", "__sk_common.skc_prot", NEEDED },
	[SOCK_FILTER] = { "sock", "sk_filter", NEEDED },
	[SOCK_OPTIONS] = { "inet_sock", "inet_opt", NEEDED },
	[PROTO_SIZE] = { "proto", "obj_size", NEEDED },
	[PIPE_HEAD] = { "pipe_inode_info", "head", NEEDED },
	[PIPE_TAIL] = { "pipe_inode_info", "tail", NEEDED },
};

static struct range {
	struct place place;
	bool is_flag; /* only whether it is zero */
} ranges[KINDS][RANGES_MOST];
static int range_counts[KINDS];
static uint32_t sizes[KINDS];
static struct place members[MEMBERS];

/* "one|other" */
static bool find_either(const char *structure, const char *paths, struct place *found)
{
	char path[64];

	for (const char *at = paths; *at;) {
		const size_t length = strcspn(at, "|");

		if (length >= sizeof path)
			return false;
		memcpy(path, at, length);
		path[length] = 0;
		if (find_place(structure, path, found))
			return true;
		at += length + (at[length] == '|');
	}
	return false;
}

/* No more is read than up to the last that is asked for. */
static void reach(enum kind kind, const struct place *place)
{
	if (place->offset + place->size > sizes[kind])
		sizes[kind] = place->offset + place->size;
}

static char missing[128];

static bool miss(const char *structure, const char *path)
{
	snprintf(missing, sizeof missing, "its %s has no %s where it is known to be", structure, path);
	return false;
}

static bool find_counting(enum kind kind)
{
	const char *const *names = counting[kind];

	for (int i = 1; names[0] && names[i]; i++) {
		struct range *one = &ranges[kind][range_counts[kind]];
		const bool may_miss = *names[i] == '?';

		one->is_flag = *names[i] == '!';
		if (find_either(names[0], names[i] + (may_miss || one->is_flag), &one->place))
			range_counts[kind]++;
		else if (!may_miss)
			return miss(names[0], names[i]);
		reach(kind, &one->place);
	}
	for (int i = 0; names[0] && i < MEMBERS; i++)
		if (!strcmp(wanted[i].structure, names[0]))
			reach(kind, &members[i]);
	return sizes[kind] <= PIECE_MOST || miss(names[0], "end");
}

static int by_offset(const void *a, const void *b)
{
	const struct range *one = a, *other = b;

	return one->place.offset < other->place.offset ? -1 : one->place.offset > other->place.offset;
}

/* Of a socket: what is not to be compared, by offset. */
static void find_not_counting(void)
{
	const char *const *names = not_counting[0];

	for (int i = 1; names[i]; i++) {
		struct range *one = &ranges[PROTOCOL_STATE][range_counts[PROTOCOL_STATE]];

		if (find_either(names[0], names[i], &one->place))
			range_counts[PROTOCOL_STATE]++;
	}
	for (int i = SOCK_FAMILY; i <= SOCK_OPTIONS; i++)
		reach(PROTOCOL_STATE, &members[i]);
	qsort(ranges[PROTOCOL_STATE], (size_t)range_counts[PROTOCOL_STATE], sizeof(struct range), by_offset);
}

const char *find_members(void)
{
	bool well = true;

	if (!read_kernel_types())
		return "it does not describe its types (/sys/kernel/btf/vmlinux)";
	for (int i = 0; well && i < MEMBERS; i++) {
		well = (find_either(wanted[i].structure, wanted[i].path, &members[i]) || wanted[i].how != NEEDED) && !members[i].mask;
		if (!well)
			miss(wanted[i].structure, wanted[i].path);
		if (wanted[i].how == BEHIND && !members[i].size)
			members[i].offset = size_of_structure(wanted[i].structure);
	}
	for (int i = 0; well && i < KINDS; i++)
		well = find_counting((enum kind)i);
	if (well)
		find_not_counting();
	forget_kernel_types();
	return well ? NULL : missing;
}

static bool is_zero(const unsigned char *from, uint32_t size)
{
	for (uint32_t i = 0; i < size; i++)
		if (from[i])
			return false;
	return true;
}

uint32_t size_of_kind(enum kind kind)
{
	return sizes[kind];
}

uint64_t number_in(const unsigned char *object, enum member member)
{
	uint64_t number = 0;

	memcpy(&number, object + members[member].offset, members[member].size < 8 ? members[member].size : 8);
	return number;
}

uint32_t offset_of(enum member member)
{
	return members[member].offset;
}

bool is_clear(const unsigned char *object, enum member member)
{
	return is_zero(object + members[member].offset, members[member].size);
}

bool has_member(enum member member)
{
	return members[member].size > 0;
}

static bool is_alike(const struct range *range, const unsigned char *one, const unsigned char *other)
{
	const struct place *at = &range->place;

	if (range->is_flag)
		return is_zero(one + at->offset, at->size) == is_zero(other + at->offset, at->size);
	if (at->mask)
		return !((one[at->offset] ^ other[at->offset]) & at->mask);
	return !memcmp(one + at->offset, other + at->offset, at->size);
}

bool are_alike(enum kind kind, const unsigned char *one, const unsigned char *other, uint32_t size)
{
	uint32_t at = 0;

	if (kind == LOOKED_AT)
		return true;
	if (kind == PROTOCOL_STATE || !range_counts[kind]) {
		for (int i = 0; i < range_counts[kind]; i++) {
			const struct place *without = &ranges[kind][i].place;

			if (without->offset > at && memcmp(one + at, other + at, without->offset - at))
				return false;
			at = without->offset + without->size > at ? without->offset + without->size : at;
		}
		return at >= size || !memcmp(one + at, other + at, size - at);
	}
	for (int i = 0; i < range_counts[kind]; i++)
		if (!is_alike(&ranges[kind][i], one, other))
			return false;
	return true;
}
