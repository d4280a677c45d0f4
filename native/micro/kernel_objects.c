/* See kernel_objects.h.
 *
 * Of most objects the members that count are named. Of a socket all count but those that are named, which are counters, caches, locks, and
 * the cookie that it is given when somebody first lists the sockets: which options it has is in so many places that one would be forgotten.
 * What counts and need not leads to a look at /proc, and to nothing wrong.
 * Of an established connection that goes on, most of what TCP counts by does not count: where it stands is read each time (standing.h). */
#include "kernel_objects.h"

#include "kernel_memory.h"
#include "kernel_types.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANGES_MOST = 192 };

#define COUNT(list) (sizeof list / sizeof *list)

/* Members that count: "structure" and then its members, each may be "one|other" of different versions; "?" before it: older ones have none;
 * "!" before it: only whether it is zero. */
static const char *const counting[KINDS][RANGES_MOST] = {
	[TASK] = { "task_struct", "comm", "policy", "rt_priority", "static_prio", "sched_reset_on_fork", "mm", "exit_state", "exit_signal",
		   "pdeath_signal", "personality", "atomic_flags", "pid", "tgid", "real_parent", "children", "group_leader", "thread_pid",
		   "clear_child_tid", "start_boottime", "real_cred", "cred", "fs", "files", "nsproxy", "signal", "sighand",
		   "pending.signal", "sas_ss_sp", "sas_ss_size", "sas_ss_flags", "seccomp", "syscall_dispatch", "robust_list",
		   "?compat_robust_list", "rseq", "rseq_len", "rseq_sig", "?io_uring", "cpus_mask", "timer_slack_ns" },
	[CHILD] = { "task_struct", "sibling", "pid", "start_boottime", "real_parent" },
	[PARENT] = { "task_struct", "tgid", "start_boottime" },
	[SIGNAL] = { "signal_struct", "nr_threads", "shared_pending.signal", "is_child_subreaper", "posix_timers", "?ignored_posix_timers",
		     "real_timer.state", "it_real_incr", "it", "pids", "leader", "tty", "rlim", "oom_score_adj" },
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
	[SOCKET] = { "socket", "state", "type", "flags", "sk", "ops" },
	[PIPE] = { "pipe_inode_info", "max_usage", "ring_size", "readers", "writers" },
};

/* "structure" and its members that do not count. */
static const char *const not_counting[][RANGES_MOST] = {
	{ "sock", "__sk_common.skc_refcnt", "__sk_common.skc_cookie", "__sk_common.skc_node", "__sk_common.skc_incoming_cpu",
	  "__sk_common.skc_tx_queue_mapping", "__sk_common.skc_rx_queue_mapping", "sk_drops", "sk_rx_dst", "sk_rx_dst_ifindex",
	  "sk_rx_dst_cookie", "sk_napi_id", "sk_lock", "sk_forward_alloc", "sk_dst_cache", "sk_txhash", "sk_timer", "sk_callback_lock",
	  "sk_stamp" },
};

static const char *const not_counting_of_connections[][RANGES_MOST] = {
	{ "sock", "sk_receive_queue", "sk_backlog", "sk_rcvbuf", "sk_sndbuf", "sk_write_pending", "sk_wmem_queued", "sk_wmem_alloc",
	  "sk_tsq_flags", "tcp_rtx_queue", "sk_write_queue", "sk_dst_pending_confirm", "sk_frag", "sk_pacing_rate" },
	{ "inet_sock", "inet_id" },
	{ "inet_connection_sock", "icsk_retransmit_timer", "icsk_delack_timer", "icsk_timeout", "icsk_rto", "icsk_ca_state", "icsk_retransmits",
	  "icsk_pending", "icsk_backoff", "icsk_probes_out", "icsk_ack", "icsk_mtup", "icsk_probes_tstamp", "icsk_ca_priv" },
	{ "tcp_sock", "max_window", "rcv_ssthresh", "reordering", "gso_segs", "retransmit_skb_hint", "lost_skb_hint", "snd_wnd", "mss_cache",
	  "snd_cwnd", "prr_out", "lost_out", "sacked_out", "scaling_ratio", "is_sack_reneg", "is_cwnd_limited", "copied_seq", "snd_wl1",
	  "tlp_high_seq", "rttvar_us", "retrans_out", "lost", "snd_ssthresh", "rtt_min", "out_of_order_queue", "segs_out", "data_segs_out",
	  "bytes_sent", "snd_sml", "chrono_type", "chrono_start", "chrono_stat", "write_seq", "pushed_seq", "lsndtime", "mdev_us", "rtt_seq",
	  "tcp_wstamp_ns", "tsorted_sent_queue", "highest_sack", "rate_app_limited", "pred_flags", "tcp_clock_cache", "tcp_mstamp", "rcv_nxt",
	  "snd_nxt", "snd_una", "window_clamp", "srtt_us", "packets_out", "snd_up", "delivered", "delivered_ce", "app_limited", "rcv_wnd",
	  "rcv_tstamp", "rx_opt.ts_recent_stamp", "rx_opt.ts_recent", "rx_opt.rcv_tsval", "rx_opt.rcv_tsecr", "rx_opt.saw_tstamp",
	  "rx_opt.dsack", "rx_opt.num_sacks", "bytes_received", "segs_in", "data_segs_in", "rcv_wup", "max_packets_out", "cwnd_usage_seq",
	  "rate_delivered", "rate_interval_us", "rcv_rtt_last_tsecr", "first_tx_mstamp", "delivered_mstamp", "bytes_acked", "rcv_rtt_est",
	  "rcvq_space", "dsack_dups", "compressed_ack_rcv_nxt", "tsq_node", "rack", "compressed_ack", "dup_ack_counter", "tlp_retrans",
	  "frto", "mdev_max_us", "reord_seen", "snd_cwnd_cnt", "snd_cwnd_used", "snd_cwnd_stamp", "prior_cwnd", "prr_delivered",
	  "last_oow_ack_time", "pacing_timer", "compressed_ack_timer", "ooo_last_skb", "duplicate_sack", "selective_acks", "recv_sack_cache",
	  "prior_ssthresh", "high_seq", "retrans_stamp", "undo_marker", "undo_retrans", "bytes_retrans", "total_retrans", "urg_seq",
	  "rcv_ooopack", "mtu_probe" },
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
	[TASK_ALTERNATE] = { "task_struct", "sas_ss_sp", NEEDED },
	[TASK_ALTERNATE_SIZE] = { "task_struct", "sas_ss_size", NEEDED },
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
	[TASK_NUMBERS] = { "task_struct", "thread_pid", MAY_MISS },
	[NUMBERS_LEVEL] = { "pid", "level", MAY_MISS },
	[NUMBER_SPACE] = { "upid", "ns", MAY_MISS },
	[SPACE_NEXT] = { "pid_namespace", "idr.idr_next", MAY_MISS },
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
	[SOCK_NETWORK] = { "sock", "__sk_common.skc_net.net", NEEDED },
	[SOCK_DEVICE] = { "sock", "__sk_common.skc_bound_dev_if", NEEDED },
	[PROTO_SIZE] = { "proto", "obj_size", NEEDED },
	[PIPE_HEAD] = { "pipe_inode_info", "head", NEEDED },
	[PIPE_TAIL] = { "pipe_inode_info", "tail", NEEDED },
	[TIMER_ITSELF] = { "timerfd_ctx", "t.tmr", MAY_MISS },
	[TIMER_QUEUED] = { "timerfd_ctx", "t.tmr.state", MAY_MISS },
	[TIMER_QUEUE] = { "timerfd_ctx", "t.tmr.base", MAY_MISS },
	[QUEUE_RUNNING] = { "hrtimer_clock_base", "running", MAY_MISS },
	[TCP_SEND_BUFFER] = { "sock", "sk_sndbuf", MAY_MISS },
	[TCP_RECEIVE_BUFFER] = { "sock", "sk_rcvbuf", MAY_MISS },
	[TCP_WRITTEN] = { "tcp_sock", "write_seq", MAY_MISS },
	[TCP_SENT] = { "tcp_sock", "snd_nxt", MAY_MISS },
	[TCP_ACKNOWLEDGED] = { "tcp_sock", "snd_una", MAY_MISS },
	[TCP_RECEIVED] = { "tcp_sock", "rcv_nxt", MAY_MISS },
	[TCP_READ] = { "tcp_sock", "copied_seq", MAY_MISS },
	[TCP_WINDOW_AT] = { "tcp_sock", "snd_wl1", MAY_MISS },
	[TCP_SEND_WINDOW] = { "tcp_sock", "snd_wnd", MAY_MISS },
	[TCP_WINDOW_MOST] = { "tcp_sock", "max_window", MAY_MISS },
	[TCP_RECEIVE_WINDOW] = { "tcp_sock", "rcv_wnd", MAY_MISS },
	[TCP_WINDOW_TOLD] = { "tcp_sock", "rcv_wup", MAY_MISS },
	[TCP_TIME_OFFSET] = { "tcp_sock", "tsoffset", MAY_MISS },
	[TCP_LOCK] = { "sock", "sk_lock.slock.rlock.raw_lock.val", MAY_MISS },
	[TCP_OWNED] = { "sock", "sk_lock.owned", MAY_MISS },
	[TCP_WAITING] = { "sock", "sk_backlog.len", MAY_MISS },
	[TCP_SHUT] = { "sock", "sk_shutdown", MAY_MISS },
	[TCP_ERROR] = { "sock", "sk_err", MAY_MISS },
	[TCP_ERRORS] = { "sock", "sk_error_queue.qlen", MAY_MISS },
	[TCP_URGENT] = { "tcp_sock", "urg_data", MAY_MISS },
	[TCP_USER] = { "sock", "sk_user_data", MAY_MISS },
	[NETWORK_LIFETIME] = { "net", "ipv4.sysctl_ip_default_ttl", MAY_MISS },
	[NETWORK_IDLE] = { "net", "ipv4.sysctl_tcp_keepalive_time", MAY_MISS },
	[NETWORK_INTERVAL] = { "net", "ipv4.sysctl_tcp_keepalive_intvl", MAY_MISS },
	[NETWORK_PROBES] = { "net", "ipv4.sysctl_tcp_keepalive_probes", MAY_MISS },
	[NETWORK_TRIES] = { "net", "ipv4.sysctl_tcp_syn_retries", MAY_MISS },
	[NETWORK_LINGER] = { "net", "ipv4.sysctl_tcp_fin_timeout", MAY_MISS },
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

static void find_not_counting_in(enum kind kind, const char *const *names)
{
	for (int i = 1; names[i]; i++) {
		struct range *one = &ranges[kind][range_counts[kind]];

		if (find_either(names[0], names[i], &one->place))
			range_counts[kind]++;
	}
}

/* Of a socket: what is not to be compared, by offset. */
static void find_not_counting(void)
{
	static const enum kind kinds[] = { PROTOCOL_STATE, CONNECTION };

	for (size_t k = 0; k < COUNT(kinds); k++) {
		const enum kind kind = kinds[k];

		for (size_t i = 0; i < COUNT(not_counting); i++)
			find_not_counting_in(kind, not_counting[i]);
		for (size_t i = 0; kind == CONNECTION && i < COUNT(not_counting_of_connections); i++)
			find_not_counting_in(kind, not_counting_of_connections[i]);
		for (int i = SOCK_FAMILY; i <= SOCK_DEVICE; i++)
			reach(kind, &members[i]);
		for (int i = TCP_FIRST; kind == CONNECTION && i <= TCP_LAST; i++)
			reach(kind, &members[i]);
		qsort(ranges[kind], (size_t)range_counts[kind], sizeof(struct range), by_offset);
	}
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

bool find_extent(enum member first, enum member last, struct extent *found)
{
	uint32_t start = UINT32_MAX, end = 0;

	for (int i = (int)first; i <= (int)last; i++) {
		const struct place *one = &members[i];

		if (!one->size)
			return false;
		start = one->offset < start ? one->offset : start;
		end = one->offset + one->size > end ? one->offset + one->size : end;
	}
	*found = (struct extent){ start, end - start };
	return true;
}

/* All but what does not count, which comes by its offset. Of a byte that is not all of a member the rest counts. */
static bool is_rest_alike(enum kind kind, const unsigned char *one, const unsigned char *other, uint32_t size)
{
	uint32_t at = 0;

	for (int i = 0; i < range_counts[kind]; i++) {
		const struct place *without = &ranges[kind][i].place;
		const uint32_t end = without->offset + without->size;
		const bool is_seen = i && without->mask && ranges[kind][i - 1].place.offset == without->offset;
		unsigned char left;

		if (is_seen)
			continue;
		if (end > size)
			break;
		if (without->offset > at && memcmp(one + at, other + at, without->offset - at))
			return false;
		left = (unsigned char)(one[without->offset] ^ other[without->offset]);
		for (int k = i; without->mask && k < range_counts[kind] && ranges[kind][k].place.offset == without->offset; k++)
			left &= (unsigned char)~ranges[kind][k].place.mask;
		if (without->mask && left)
			return false;
		at = end > at ? end : at;
	}
	return at >= size || !memcmp(one + at, other + at, size - at);
}

bool are_alike(enum kind kind, const unsigned char *one, const unsigned char *other, uint32_t size)
{
	if (kind == LOOKED_AT)
		return true;
	if (kind == PROTOCOL_STATE || kind == CONNECTION || !range_counts[kind])
		return is_rest_alike(kind, one, other, size);
	for (int i = 0; i < range_counts[kind]; i++)
		if (!is_alike(&ranges[kind][i], one, other))
			return false;
	return true;
}
