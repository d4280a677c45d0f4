/* smaps_shim: lets CRIU read the flags of a process's mappings without a look at each of its pages.
 *
 * Loaded into CRIU with LD_PRELOAD for commits whose memory is copied ahead. Of /proc/PID/smaps CRIU uses the line of each mapping, which
 * /proc/PID/maps has too, and its VmFlags. For the sizes between them the kernel walks all page tables, 13 ms for each GB, with the
 * process frozen. So where CRIU opens smaps it is given a file with these two lines of each mapping instead. The flags come from a program
 * of the kernel's virtual machine, which writes begin, end and vm_flags of each mapping (an iterator, BPF_TRACE_ITER, Linux 6.1).
 *
 * What the bits of vm_flags are called is the kernel's own affair (show_smap_vma_flags() in fs/proc/task_mmu.c). So before CRIU freezes
 * anything, what would be said of CRIU's own mappings, among them one for each flag below that a process can ask for, is compared with its
 * real smaps. CRIU reads the real file
 *  - of each process, where that differs, or the kernel has no such programs or allows us none;
 *  - of one that has a mapping with a flag not named below, or whose maps and iterator do not say the same.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	SEQ_WRITE = 127, /* BPF_FUNC_seq_write */
	STRUCT = 4,	 /* BTF_KIND_* */
	UNION = 5,
	FUNCTION = 12,
	LINE = 8192, /* a mapping's, with the longest path */
	MADV_WIPE_ON_FORK = 18,
	MAP_DROPS = 8, /* MAP_DROPPABLE, Linux 6.11 */
};

struct mapping {
	uint64_t start, end, flags;
};

struct text {
	char *bytes;
	size_t size, room;
};

/* Bits of vm_flags. Of those that CRIU wants to know each is compared with smaps on each start, if this kernel lets a process have it. */
static const struct {
	uint8_t bit;
	char name[3];
} names[] = {
	{ 0, "rd" },  { 1, "wr" },  { 2, "ex" },  { 3, "sh" },	{ 4, "mr" },  { 5, "mw" },  { 6, "me" },  { 7, "ms" },	{ 8, "gd" },
	{ 9, "um" },  { 10, "pf" }, { 12, "uw" }, { 13, "lo" }, { 14, "io" }, { 15, "sr" }, { 16, "rr" }, { 17, "dc" }, { 18, "de" },
	{ 20, "ac" }, { 21, "nr" }, { 25, "wf" }, { 26, "dd" }, { 27, "sd" }, { 29, "hg" }, { 30, "nh" }, { 31, "mg" }, { 40, "dp" },
	{ 42, "sl" },
};

static int program = -1; /* what lists mappings; -1: CRIU reads the real smaps */

/* -- text --------------------------------------------------------------------------------------------------------- */

static bool append(struct text *to, const char *bytes, size_t size)
{
	if (to->size + size + 1 > to->room) {
		size_t room = 2 * (to->size + size + 1);
		char *grown = realloc(to->bytes, room);

		if (!grown)
			return false;
		to->bytes = grown;
		to->room = room;
	}
	memcpy(to->bytes + to->size, bytes, size);
	to->size += size;
	to->bytes[to->size] = '\0';
	return true;
}

/* All that a file says, behind what there is; closes it. */
static bool append_file(struct text *to, int file)
{
	static char piece[1 << 16];
	ssize_t got = -1;

	while (file >= 0 && (got = read(file, piece, sizeof piece)) > 0)
		if (!append(to, piece, (size_t)got))
			break;
	if (file >= 0)
		close(file);
	return got == 0 && append(to, "", 0);
}

/* -- the program -------------------------------------------------------------------------------------------------- */

static long bpf(int command, union bpf_attr *attributes)
{
	return syscall(SYS_bpf, command, attributes, sizeof *attributes);
}

/* The kernel's description of its own types (BTF). */
struct types {
	const char *names, *names_end;
	const uint32_t **all; /* by number; the first is void */
	uint32_t count;
};

static const char *name_of(const struct types *types, uint32_t offset)
{
	return offset < (size_t)(types->names_end - types->names) ? types->names + offset : "";
}

/* How many words follow the three that each type has; -1 for a kind that is not known. */
static long words_behind(uint32_t info)
{
	static const int8_t each[] = { 0, 0, 0, 0, 3, 3, 2, 0, 0, 0, 0, 0, 0, 2, 0, 3, 0, 0, 0, 3 };
	static const int8_t fixed[] = { 0, 1, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0 };
	uint32_t kind = info >> 24 & 0x1f;

	return kind < sizeof each ? each[kind] * (long)(info & 0xffff) + fixed[kind] : -1;
}

static bool read_types(const struct text *from, struct types *types)
{
	const struct {
		uint16_t magic;
		uint8_t version, flags;
		uint32_t head, types, types_size, names, names_size;
	} *head = (const void *)from->bytes;
	const uint32_t *at, *end;

	if (from->size < sizeof *head || head->magic != 0xeb9f || !head->names_size ||
	    (uint64_t)head->head + head->types + head->types_size > from->size ||
	    (uint64_t)head->head + head->names + head->names_size > from->size)
		return false;
	types->names = from->bytes + head->head + head->names;
	types->names_end = types->names + head->names_size;
	at = (const uint32_t *)(from->bytes + head->head + head->types);
	end = at + head->types_size / 4;
	types->all = malloc((head->types_size / 12 + 1) * sizeof *types->all);
	if (!types->all || types->names_end[-1])
		return false;
	types->all[0] = NULL;
	for (types->count = 1; at + 3 <= end; types->count++) {
		long behind = words_behind(at[1]);

		if (behind < 0 || behind > end - at - 3)
			return false;
		types->all[types->count] = at;
		at += 3 + behind;
	}
	return true;
}

static uint32_t type_called(const struct types *types, uint32_t kind, const char *name)
{
	for (uint32_t number = 1; number < types->count; number++)
		if ((types->all[number][1] >> 24 & 0x1f) == kind && !strcmp(name_of(types, types->all[number][0]), name))
			return number;
	return 0;
}

/* The offset of a member in bytes, also where it is one of a member without a name; -1 where there is none. */
static long offset_of(const struct types *types, uint32_t number, const char *name)
{
	const uint32_t *type = number && number < types->count ? types->all[number] : NULL;
	uint32_t kind = type ? type[1] >> 24 & 0x1f : 0;

	if (kind != STRUCT && kind != UNION)
		return -1;
	for (uint32_t i = 0; i < (type[1] & 0xffff); i++) {
		const uint32_t *member = type + 3 + 3 * i;
		const char *its = name_of(types, member[0]);
		long within = *its ? (strcmp(its, name) ? -1 : 0) : offset_of(types, member[1], name);

		if (within >= 0)
			return (member[2] & 0xffffff) / 8 + within;
	}
	return -1;
}

/* Writes `struct mapping` of each mapping that it is called for; -1. */
static int load(int iterator, int start, int end, int flags)
{
	enum { READ = BPF_LDX | BPF_MEM | BPF_DW, KEEP = BPF_STX | BPF_MEM | BPF_DW };
	enum { COPY = BPF_ALU64 | BPF_MOV | BPF_X, SET = BPF_ALU64 | BPF_MOV | BPF_K, ADD = BPF_ALU64 | BPF_ADD | BPF_K };
	const struct bpf_insn steps[] = {
		/* struct bpf_iter__task_vma: meta, task, vma */
		{ READ, 2, 1, 16, 0 },
		{ BPF_JMP | BPF_JEQ | BPF_K, 2, 0, 12, 0 },
		{ READ, 3, 2, (int16_t)start, 0 },
		{ KEEP, 10, 3, -24, 0 },
		{ READ, 3, 2, (int16_t)end, 0 },
		{ KEEP, 10, 3, -16, 0 },
		{ READ, 3, 2, (int16_t)flags, 0 },
		{ KEEP, 10, 3, -8, 0 },
		{ READ, 1, 1, 0, 0 }, /* meta */
		{ READ, 1, 1, 0, 0 }, /* its seq */
		{ COPY, 2, 10, 0, 0 },
		{ ADD, 2, 0, 0, -24 },
		{ SET, 3, 0, 0, sizeof(struct mapping) },
		{ BPF_JMP | BPF_CALL, 0, 0, 0, SEQ_WRITE },
		{ SET, 0, 0, 0, 0 },
		{ BPF_JMP | BPF_EXIT, 0, 0, 0, 0 },
	};
	union bpf_attr attributes = { 0 };

	attributes.prog_type = BPF_PROG_TYPE_TRACING;
	attributes.expected_attach_type = BPF_TRACE_ITER;
	attributes.attach_btf_id = (uint32_t)iterator;
	attributes.insns = (uint64_t)steps;
	attributes.insn_cnt = sizeof steps / sizeof *steps;
	attributes.license = (uint64_t) "Dual MIT/GPL";
	return (int)bpf(BPF_PROG_LOAD, &attributes);
}

static int load_for_this_kernel(void)
{
	struct text btf = { 0 };
	struct types types = { 0 };
	int loaded = -1;

	if (append_file(&btf, open("/sys/kernel/btf/vmlinux", O_RDONLY | O_CLOEXEC)) && read_types(&btf, &types)) {
		uint32_t mapping = type_called(&types, STRUCT, "vm_area_struct");
		uint32_t iterator = type_called(&types, FUNCTION, "bpf_iter_task_vma");
		long start = offset_of(&types, mapping, "vm_start"), end = offset_of(&types, mapping, "vm_end");
		long flags = offset_of(&types, mapping, "vm_flags");

		if (iterator && start >= 0 && end >= 0 && flags >= 0)
			loaded = load((int)iterator, (int)start, (int)end, (int)flags);
	}
	free(types.all);
	free(btf.bytes);
	return loaded;
}

/* All mappings that an iterator lists, in order, behind what there is; closes it. Where they are more than its buffer holds (32 KiB) it
 * does not end (Linux 6.18): it gives the last part again and again. Whoever asks compares what was listed with maps. */
static bool append_listed(struct text *to, int iterator)
{
	static struct mapping piece[4096];
	uint64_t last = 0;
	ssize_t got = -1;

	while (iterator >= 0 && (got = read(iterator, piece, sizeof piece)) > 0 && (size_t)got % sizeof *piece == 0 && piece->end > last) {
		last = piece[(size_t)got / sizeof *piece - 1].end;
		if (!append(to, (const char *)piece, (size_t)got)) {
			got = -1;
			break;
		}
	}
	if (iterator >= 0)
		close(iterator);
	return got >= 0 && append(to, "", 0);
}

/* Appends a `struct mapping` for each mapping of a process, as our PID namespace calls it. */
static bool append_mappings(struct text *to, pid_t pid)
{
	struct {
		uint32_t thread, process, handle;
	} of = { .thread = (uint32_t)pid };
	union bpf_attr attributes = { 0 };
	bool is_whole;
	int link;

	attributes.link_create.prog_fd = (uint32_t)program;
	attributes.link_create.attach_type = BPF_TRACE_ITER;
	attributes.link_create.iter_info = (uint64_t)&of;
	attributes.link_create.iter_info_len = sizeof of;
	link = (int)bpf(BPF_LINK_CREATE, &attributes);
	if (link < 0)
		return false;
	memset(&attributes, 0, sizeof attributes);
	attributes.iter_create.link_fd = (uint32_t)link;
	is_whole = append_listed(to, (int)bpf(BPF_ITER_CREATE, &attributes));
	close(link);
	return is_whole && to->size % sizeof(struct mapping) == 0;
}

/* -- what is said ------------------------------------------------------------------------------------------------- */

/* Appends the line of a mapping's flags; false for one that has no name here. */
static bool append_flags(struct text *to, uint64_t flags)
{
	char line[LINE] = "VmFlags: ", *at = line + strlen(line);

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (!(flags >> names[i].bit & 1))
			continue;
		at = stpcpy(stpcpy(at, names[i].name), " ");
		flags &= ~(1ULL << names[i].bit);
	}
	strcpy(at, "\n");
	return !flags && append(to, line, strlen(line));
}

/* A line of maps or smaps that begins with addresses. Not sscanf(): it looks for the end of all that follows, for each line. */
static bool opens_mapping(const char *line, uint64_t *start, uint64_t *end)
{
	char *at;

	*start = strtoull(line, &at, 16);
	if (at == line || *at++ != '-')
		return false;
	line = at;
	*end = strtoull(line, &at, 16);
	return at != line && *at == ' ';
}

/* Appends what smaps says of a process, without sizes; `maps` is closed. */
static bool append_smaps(struct text *to, int maps, pid_t pid)
{
	struct text lines = { 0 }, found = { 0 };
	const struct mapping *mapping, *last;
	char *line, *next;
	bool is_right = append_file(&lines, maps) && append_mappings(&found, pid);

	mapping = (const struct mapping *)found.bytes;
	last = mapping + (is_right ? found.size / sizeof *mapping : 0);
	for (line = lines.bytes; is_right && *line; line = next) {
		uint64_t start, end;

		next = strchr(line, '\n');
		next = next ? next + 1 : line + strlen(line);
		is_right = opens_mapping(line, &start, &end) && append(to, line, (size_t)(next - line));
		if (!is_right)
			break;
		if (mapping < last && mapping->start == start && mapping->end == end)
			is_right = append_flags(to, mapping++->flags);
		else /* which is nobody's: every process has the same */
			is_right = strstr(line, "[vsyscall]\n") && append(to, "VmFlags: ex \n", 13);
	}
	is_right = is_right && mapping == last;
	free(lines.bytes);
	free(found.bytes);
	return is_right;
}

/* One mapping for each flag that can be asked for; false where one could not be had for another reason than that nobody can. */
static bool map_examples(char **examples, size_t count, size_t page)
{
	static const int advice[] = { MADV_SEQUENTIAL, MADV_RANDOM,    MADV_DONTFORK,	  MADV_DONTDUMP,
				      MADV_MERGEABLE,  MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_WIPE_ON_FORK };
	static const int flags[] = { MAP_PRIVATE | MAP_NORESERVE, MAP_PRIVATE | MAP_GROWSDOWN, MAP_PRIVATE | MAP_LOCKED, MAP_SHARED,
				     MAP_DROPS };
	size_t advices = sizeof advice / sizeof *advice;
	bool is_well = true;

	for (size_t i = 0; i < count; i++) {
		int how = i < advices ? MAP_PRIVATE : flags[i - advices];

		examples[i] = mmap(NULL, page, PROT_READ | PROT_WRITE, how | MAP_ANONYMOUS, -1, 0);
		is_well = is_well && (examples[i] != MAP_FAILED || how == MAP_DROPS);
		/* EINVAL: nobody can have it here, as advice of a part that the kernel was built without. */
		if (i < advices && examples[i] != MAP_FAILED && madvise(examples[i], page, advice[i]) < 0)
			is_well = is_well && errno == EINVAL;
	}
	return is_well;
}

/* Lines of smaps that CRIU uses, of a text in place. */
static void keep_used(struct text *text)
{
	char *to = text->bytes, *next;

	for (char *line = text->bytes; *line; line = next) {
		uint64_t start, end;

		next = strchr(line, '\n');
		next = next ? next + 1 : line + strlen(line);
		if (opens_mapping(line, &start, &end) || !strncmp(line, "VmFlags: ", 9)) {
			memmove(to, line, (size_t)(next - line));
			to += next - line;
		}
	}
	*to = '\0';
	text->size = (size_t)(to - text->bytes);
}

/* What is said of our own mappings is what the kernel says. */
static bool says_the_same(void)
{
	enum { EXAMPLES = 13 };
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct text said = { 0 }, real = { 0 };
	char *examples[EXAMPLES];
	bool is_same;

	/* So that reading maps no memory between the one and the other. */
	said.bytes = malloc(said.room = 1 << 20);
	real.bytes = malloc(real.room = 1 << 20);
	is_same = map_examples(examples, EXAMPLES, page) && said.bytes && real.bytes &&
		  append_file(&real, open("/proc/self/smaps", O_RDONLY | O_CLOEXEC)) &&
		  append_smaps(&said, open("/proc/self/maps", O_RDONLY | O_CLOEXEC), getpid());
	if (is_same) {
		keep_used(&real);
		is_same = !strcmp(said.bytes, real.bytes);
	}
	for (size_t i = 0; i < EXAMPLES; i++)
		if (examples[i] != MAP_FAILED)
			munmap(examples[i], page);
	free(said.bytes);
	free(real.bytes);
	return is_same;
}

/* -- CRIU's reading ----------------------------------------------------------------------------------------------- */

/* The pid that a directory of /proc is of; 0. */
static pid_t pid_of(int directory)
{
	int file = openat(directory, "stat", O_RDONLY | O_CLOEXEC);
	char text[32] = "";
	ssize_t got = file >= 0 ? read(file, text, sizeof text - 1) : -1;

	if (file >= 0)
		close(file);
	return got > 0 ? atoi(text) : 0;
}

/* A file that says what smaps of a directory of /proc says, without sizes; -1. */
static int made_smaps(int directory)
{
	struct text said = { 0 };
	pid_t pid = pid_of(directory);
	int file = -1;

	if (pid && append_smaps(&said, openat(directory, "maps", O_RDONLY | O_CLOEXEC), pid)) {
		file = memfd_create("smaps", MFD_CLOEXEC);
		if (file >= 0 && (write(file, said.bytes, said.size) != (ssize_t)said.size || lseek(file, 0, SEEK_SET) < 0)) {
			close(file);
			file = -1;
		}
	}
	free(said.bytes);
	return file;
}

__attribute__((constructor)) static void begin(void)
{
	/* nsenter, by which it is started, is given the same libraries. */
	if (strcmp(program_invocation_short_name, "criu") != 0)
		return;
	program = load_for_this_kernel();
	if (program >= 0 && !says_the_same()) {
		close(program);
		program = -1;
	}
}

int openat64(int directory, const char *name, int flags, ...)
{
	static int (*next)(int, const char *, int, ...);
	va_list arguments;
	mode_t mode;
	int file = -1;

	va_start(arguments, flags);
	mode = va_arg(arguments, mode_t);
	va_end(arguments);
	if (program >= 0 && !strcmp(name, "smaps") && (flags & O_ACCMODE) == O_RDONLY)
		file = made_smaps(directory);
	if (file >= 0)
		return file;
	if (!next)
		next = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat64");
	return next(directory, name, flags, mode);
}
