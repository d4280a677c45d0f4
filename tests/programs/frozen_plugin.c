/*
 * A plugin of CRIU for tests: runs `sh frozen.sh dump|restore`, which lies beside it, while nothing of a tree moves: at the end of a
 * dump, and at a restore before anything runs. What that says at a restore goes to "frozen.json" beside the images.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern int criu_get_image_dir(void);

enum { DUMP = 0, RESTORE = 2 };
static int stage, has_run;

int cr_plugin_init(int now)
{
    stage = now;
    return 0;
}

static void run(const char *when, int output)
{
    char script[PATH_MAX];
    Dl_info self;
    sigset_t child, before;
    if (!dladdr((void *)run, &self))
        return;
    snprintf(script, sizeof(script), "%s", self.dli_fname);
    strcpy(strrchr(script, '/'), "/frozen.sh");
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &before);
    pid_t pid = fork();
    if (pid == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        unsetenv("LD_PRELOAD");
        if (output >= 0)
            dup2(output, 1);
        execl("/bin/sh", "sh", script, when, NULL);
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    sigprocmask(SIG_SETMASK, &before, NULL);
}

void cr_plugin_fini(int now, int failed)
{
    if (now == DUMP && !failed)
        run("dump", -1);
}

int cr_plugin_resume_devices_late(int pid)
{
    (void)pid;
    if (stage != RESTORE || has_run)
        return -ENOTSUP;
    has_run = 1;
    int output = openat(criu_get_image_dir(), "frozen.json", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (output >= 0) {
        run("restore", output);
        close(output);
    }
    return -ENOTSUP; /* CRIU asks other plugins only then */
}
