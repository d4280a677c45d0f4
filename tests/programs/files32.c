/* A program of 32 bits, without a C library: does to files of a directory what it can by the calls of i386. Ends 0 if all went well, else
 * with the number of the call that failed; with another argument it waits instead of ending.
 *
 *     gcc -m32 -nostdlib -static -ffreestanding -fno-pic -fno-stack-protector files32.c
 */
enum { WRONLY = 1, RDWR = 2, CREAT = 0100, TRUNC = 01000, APPEND = 02000, AT_CWD = -100 };

static int call(int number, long a, long b, long c, long d, long e)
{
    int result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e) : "memory");
    return result;
}

struct { short type, whence; long start, length; int pid; } read_lock = { 0, 0, 128, 1, 0 };
struct how { unsigned long long flags, mode, resolve; };

#define TRY(number, ...) do { if (call6(number, __VA_ARGS__, 0, 0, 0, 0, 0) < 0) return number; } while (0)
#define call6(number, a, b, c, d, e, ...) call(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e))

static int write_to(int fd)
{
    int done = fd < 0 ? fd : call(4 /* write */, fd, (long)"32 bits", 7, 0, 0);
    return fd < 0 || call(6 /* close */, fd, 0, 0, 0, 0) < 0 ? -1 : done;
}

static int work(char *directory)
{
    struct how how = { WRONLY | CREAT, 0644, 0 };
    long times[4] = { 5, 5, 5, 5 };
    int fd;

    TRY(12 /* chdir */, directory);
    if (write_to(call(5 /* open */, (long)"open", WRONLY | TRUNC, 0, 0, 0)) < 0)
        return 5;
    if (write_to(call(295 /* openat */, AT_CWD, (long)"openat", WRONLY | APPEND, 0, 0)) < 0)
        return 295;
    if (write_to(call(437 /* openat2 */, AT_CWD, (long)"openat2", (long)&how, sizeof how, 0)) < 0)
        return 437;
    if (write_to(call(8 /* creat */, (long)"creat", 0600, 0, 0, 0)) < 0)
        return 8;
    TRY(38 /* rename */, "rename", "renamed");
    TRY(302 /* renameat */, AT_CWD, "renameat", AT_CWD, "renamed-at");
    TRY(353 /* renameat2 */, AT_CWD, "exchange-one", AT_CWD, "exchange-two", 2);
    TRY(10 /* unlink */, "unlink");
    TRY(301 /* unlinkat */, AT_CWD, "unlinkat", 0);
    TRY(40 /* rmdir */, "rmdir");
    TRY(39 /* mkdir */, "mkdir", 0700);
    TRY(296 /* mkdirat */, AT_CWD, "mkdirat", 0700);
    TRY(83 /* symlink */, "target", "symlink");
    TRY(9 /* link */, "link", "linked");
    TRY(92 /* truncate */, "truncate", 1);
    TRY(193 /* truncate64 */, "truncate64", 2, 0);
    TRY(15 /* chmod */, "chmod", 0751);
    TRY(306 /* fchmodat */, AT_CWD, "fchmodat", 0715);
    TRY(212 /* chown */, "chown", 7, 8);
    TRY(182 /* chown16 */, "chown16", 7, 8);
    TRY(320 /* utimensat */, AT_CWD, "utimensat", times, 0);
    TRY(226 /* setxattr */, "setxattr", "user.k", "new", 3, 0);
    TRY(14 /* mknod */, "fifo", 0010644, 0);
    fd = call(5 /* open */, (long)"fchmod", 0, 0, 0, 0);
    TRY(94 /* fchmod */, fd, 0600);
    TRY(207 /* fchown */, fd, 9, 9);
    fd = call(5 /* open */, (long)"mapped", RDWR, 0, 0, 0);
    char *view = (char *)call(90 /* mmap */, (long)(long[]){ 0, 4096, 3, 1, fd, 0 }, 0, 0, 0, 0);
    if ((unsigned long)view > -4096ul)
        return 90;
    view[0] = 'm';
    TRY(55 /* fcntl */, fd, 6 /* F_SETLK */, &read_lock);
    return 0;
}

__attribute__((used)) static void begin(char **stack)
{
    int failed = work(stack[2]);
    if (stack[3] && !failed)
        call(29 /* pause */, 0, 0, 0, 0, 0);
    call(1 /* exit */, failed, 0, 0, 0, 0);
}

__asm__(".globl _start\n_start: mov %esp, %eax\n push %eax\n call begin\n");
