/* Counts on its standard output, ten a second, with as little memory as a program can have. No library. */
static long call(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}
static unsigned long count;
void _start(void) {
    struct { long seconds, nanoseconds; } tenth = {0, 100000000};
    for (;;) {
        char text[24], *begin = text + sizeof text;
        *--begin = '\n';
        unsigned long rest = ++count;
        do *--begin = '0' + rest % 10; while (rest /= 10);
        call(1, 1, (long)begin, text + sizeof text - begin);
        call(35, (long)&tenth, 0, 0);
    }
}
