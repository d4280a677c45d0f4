/*
 * A plugin of CRIU (criu-plugin.h, by the names of the first interface): it has restored processes take their POSIX locks again.
 *
 * CRIU takes them when a process has its descriptors, and maps files after that, by descriptors of its own that it closes in that same
 * process. But such a lock ends when its owner closes any descriptor of the file (fcntl(2)), so a mapped file loses all of them: an index
 * of SQLite, say. Here, when all is mapped and nothing runs yet, each process is made to call fcntl(2) again, which changes nothing
 * where the lock is held still. CRIU is its tracer, so nobody else could.
 *
 * In the images' directory: "posix-locks" has a line PID FD TYPE START LENGTH for each lock, as struct flock has them, in order of PID;
 * without it there is nothing to do. To "posix-locks.told" goes a line for each process: PID, then 0, or the errno and what failed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

extern int criu_get_image_dir(void);

enum { RESTORE = 2 }; /* CR_PLUGIN_STAGE__RESTORE */
enum { SIGNALS = 8 }; /* [bytes] the kernel's sigset_t */
enum { WHOLE_CODE = 1 << 20 }; /* [bytes] how much of each mapping is looked through for an instruction */

static int stage;

/* A process that CRIU has stopped, while it is made to call. */
struct caller {
    pid_t pid;
    struct user_regs_struct registers; /* those that it goes on with */
    uint64_t blocked;                  /* the signals that it blocks itself */
    uint64_t instruction;              /* where it has a `syscall`, or an `int 0x80` */
    bool is_32;                        /* a program of 32 bits */
    uint64_t section, in_section;      /* where its critical section of rseq(2) is named; what is there. 0: nowhere */
    bool was_stopped;                  /* a SIGSTOP came meanwhile, and has to come again */
};

int cr_plugin_init(int now)
{
    stage = now;
    return 0;
}

/* struct flock64 of i386, where a long long lies at any multiple of 4. */
struct flock_32 {
    short type, whence;
    int64_t start, length;
    int pid;
} __attribute__((packed, aligned(4)));

enum { MMAP2_32 = 192, MUNMAP_32 = 91, FCNTL64_32 = 221, SETLK64_32 = 13 };

static bool find_in(pid_t pid, bool is_32, uint64_t start, uint64_t end, uint64_t *found)
{
    const uint8_t first = is_32 ? 0xcd : 0x0f, second = is_32 ? 0x80 : 0x05;
    uint8_t code[4096 + 1];
    for (uint64_t at = start; at < end && at < start + WHOLE_CODE; at += 4096) {
        struct iovec here = {code, end - at < sizeof(code) ? end - at : sizeof(code)}, there = {(void *)at, here.iov_len};
        ssize_t size = process_vm_readv(pid, &here, 1, &there, 1, 0);
        for (ssize_t i = 0; i + 1 < size; i++)
            if (code[i] == first && code[i + 1] == second) {
                *found = at + (uint64_t)i;
                return true;
            }
    }
    return false;
}

/* Such an instruction in its memory: the vDSO has one, else some library. Nothing has to be written into its code so. */
static int find_instruction(struct caller *one)
{
    char path[64], line[4096 + 256];
    snprintf(path, sizeof(path), "/proc/%d/maps", one->pid);
    for (int pass = 0; pass < 2; pass++) {
        FILE *maps = fopen(path, "re");
        if (!maps)
            return errno;
        bool is_found = false;
        while (!is_found && fgets(line, sizeof(line), maps)) {
            uint64_t start, end;
            char rights[5];
            if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &start, &end, rights) != 3 || rights[0] != 'r' || rights[2] != 'x')
                continue;
            if (pass == 1 || strstr(line, "[vdso]"))
                is_found = find_in(one->pid, one->is_32, start, end, &one->instruction);
        }
        fclose(maps);
        if (is_found)
            return 0;
    }
    return ENOENT;
}

/* Running anything else ends a critical section of rseq(2) as if it had been left; it is to be entered again. */
static void keep_section(struct caller *one)
{
    struct __ptrace_rseq_configuration rseq;
    if (ptrace(PTRACE_GET_RSEQ_CONFIGURATION, one->pid, sizeof(rseq), &rseq) != sizeof(rseq) || !rseq.rseq_abi_pointer)
        return;
    one->section = rseq.rseq_abi_pointer + 8; /* struct rseq: rseq_cs */
    errno = 0;
    one->in_section = (uint64_t)ptrace(PTRACE_PEEKDATA, one->pid, one->section, 0);
    if (errno)
        one->section = 0;
}

static int begin(struct caller *one)
{
    uint64_t all = ~0ull;
    if (ptrace(PTRACE_GETREGS, one->pid, 0, &one->registers) ||
        ptrace(PTRACE_GETSIGMASK, one->pid, SIGNALS, &one->blocked))
        return errno;
    one->is_32 = one->registers.cs == 0x23;
    int failed = find_instruction(one);
    if (failed)
        return failed;
    keep_section(one);
    return ptrace(PTRACE_SETSIGMASK, one->pid, SIGNALS, &all) ? errno : 0;
}

static int end(struct caller *one)
{
    int failed = 0;
    if (one->in_section && ptrace(PTRACE_POKEDATA, one->pid, one->section, one->in_section))
        failed = errno;
    if (ptrace(PTRACE_SETREGS, one->pid, 0, &one->registers) ||
        ptrace(PTRACE_SETSIGMASK, one->pid, SIGNALS, &one->blocked))
        failed = errno;
    if (one->was_stopped && kill(one->pid, SIGSTOP))
        failed = errno;
    return failed;
}

/* Have it make one system call; its result, negative for an error. */
static long call(struct caller *one, long number, long first, long second, long third, long fourth, long fifth)
{
    struct user_regs_struct registers = one->registers;
    int status;
    registers.rip = one->instruction;
    registers.rax = (uint64_t)number;
    registers.orig_rax = (uint64_t)-1; /* so that no call is begun anew */
    registers.rdx = (uint64_t)third;
    if (one->is_32) {
        registers.rbx = (uint64_t)first;
        registers.rcx = (uint64_t)second;
        registers.rsi = (uint64_t)fourth;
        registers.rdi = (uint64_t)fifth;
        registers.rbp = 0;
    } else {
        registers.rdi = (uint64_t)first;
        registers.rsi = (uint64_t)second;
        registers.r10 = (uint64_t)fourth;
        registers.r8 = (uint64_t)fifth;
        registers.r9 = 0;
    }
    if (ptrace(PTRACE_SETREGS, one->pid, 0, &registers))
        return -errno;
    do {
        if (ptrace(PTRACE_SINGLESTEP, one->pid, 0, 0) || waitpid(one->pid, &status, __WALL) != one->pid)
            return -errno;
        if (!WIFSTOPPED(status))
            return -ESRCH;
        if (WSTOPSIG(status) == SIGSTOP)
            one->was_stopped = true; /* the only one that cannot be blocked; nothing was run then */
    } while (WSTOPSIG(status) == SIGSTOP);
    if (ptrace(PTRACE_GETREGS, one->pid, 0, &registers))
        return -errno;
    if (registers.rip != one->instruction + 2)
        return -EFAULT;
    if (!one->is_32)
        return (long)registers.rax;
    uint32_t result = (uint32_t)registers.rax; /* an address, or an errno */
    return result > (uint32_t)-4096 ? (int32_t)result : (long)result;
}

static long map_page(struct caller *one)
{
    return call(one, one->is_32 ? MMAP2_32 : SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

static long unmap_page(struct caller *one, long memory)
{
    return call(one, one->is_32 ? MUNMAP_32 : SYS_munmap, memory, 4096, 0, 0, 0);
}

static int lock(struct caller *one, uint64_t memory, int descriptor, const struct flock *wanted)
{
    struct flock_32 narrow = {wanted->l_type, wanted->l_whence, wanted->l_start, wanted->l_len, 0};
    size_t size = one->is_32 ? sizeof(narrow) : sizeof(*wanted);
    struct iovec here = {one->is_32 ? (void *)&narrow : (void *)wanted, size}, there = {(void *)memory, size};
    if (process_vm_writev(one->pid, &here, 1, &there, 1, 0) != (ssize_t)size)
        return errno;
    if (one->is_32)
        return (int)-call(one, FCNTL64_32, descriptor, SETLK64_32, (long)memory, 0, 0);
    return (int)-call(one, SYS_fcntl, descriptor, F_SETLK, (long)memory, 0, 0);
}

/* Take those of one process, whose images call it `inside`; 0 or an errno, with what failed. */
static int take_again(FILE *locks, pid_t pid, pid_t inside, const char **what)
{
    struct caller one = {.pid = pid};
    struct flock wanted = {.l_whence = SEEK_SET};
    int owner, descriptor, failed;
    short type;
    int64_t start, length;

    *what = "have it make a system call";
    if ((failed = begin(&one)))
        return failed;
    *what = "make room in its memory";
    long memory = map_page(&one);
    if (memory < 0 && memory > -4096) {
        failed = (int)-memory;
    } else {
        rewind(locks);
        *what = "lock";
        while (!failed && fscanf(locks, "%d %d %hd %" SCNd64 " %" SCNd64, &owner, &descriptor, &type, &start, &length) == 5) {
            if (owner != inside)
                continue;
            wanted.l_type = type;
            wanted.l_start = start;
            wanted.l_len = length;
            failed = lock(&one, (uint64_t)memory, descriptor, &wanted);
        }
        long freed = unmap_page(&one, memory);
        if (!failed && freed) {
            *what = "free the room in its memory";
            failed = (int)-freed;
        }
    }
    int left = end(&one);
    if (!failed && left) {
        *what = "have it go on as it was";
        failed = left;
    }
    return failed;
}

/* Its number in the innermost PID namespace, which is that of its images: a container has one below CRIU's. */
static pid_t number_inside(pid_t pid)
{
    char path[64], line[512];
    pid_t found = pid;

    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    FILE *status = fopen(path, "re");
    while (status && fgets(line, sizeof(line), status))
        if (strncmp(line, "NSpid:", 6) == 0) {
            const char *last = strrchr(line, '\t');
            found = last ? (pid_t)strtol(last, NULL, 10) : pid;
            break;
        }
    if (status)
        fclose(status);
    return found;
}

static bool has_any(FILE *locks, pid_t pid)
{
    int owner;
    while (fscanf(locks, "%d %*[^\n]", &owner) == 1)
        if (owner == pid)
            return true;
    return false;
}

int cr_plugin_resume_devices_late(int pid)
{
    int descriptor = stage == RESTORE ? openat(criu_get_image_dir(), "posix-locks", O_RDONLY | O_CLOEXEC) : -1;
    FILE *locks = descriptor < 0 ? NULL : fdopen(descriptor, "r");
    const char *what = "";
    if (!locks)
        return -ENOTSUP;
    pid_t inside = number_inside(pid);
    if (has_any(locks, inside)) {
        int failed = take_again(locks, pid, inside, &what);
        int told = openat(criu_get_image_dir(), "posix-locks.told", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (told >= 0) {
            dprintf(told, failed ? "%d %d %s\n" : "%d %d\n", inside, failed, what);
            close(told);
        }
    }
    fclose(locks);
    return -ENOTSUP; /* CRIU asks other plugins only then */
}
