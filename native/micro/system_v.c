/* See system_v.h. */
#define _GNU_SOURCE
#include "system_v.h"

#include "base.h"
#include "text.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KINDS = 3, TABLE_MOST = 1 << 16 /* [bytes] some 400 segments */ };

static int tables[KINDS] = { -1, -1, -1 };
static ino_t space;
static bool is_own; /* else they are the host's, of which a commit holds none */

void enter_ipc(void)
{
	static const char *const names[KINDS] = { "/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg" };
	const int entered = open(of_process("ns/ipc"), O_RDONLY | O_CLOEXEC);
	struct stat its, ours;

	if (entered < 0)
		return;
	if (!fstat(entered, &its) && !stat("/proc/self/ns/ipc", &ours)) {
		space = its.st_ino;
		is_own = its.st_ino != ours.st_ino;
	}
	if (is_own && !setns(entered, CLONE_NEWIPC))
		for (int i = 0; i < KINDS; i++) /* each is that of the namespace in which it is opened */
			tables[i] = open(names[i], O_RDONLY | O_CLOEXEC);
	close(entered);
}

/* What follows the headings (proc_sysvipc(5)); NULL: it cannot be read, or is longer. */
static char *rows_of(int table, char *to)
{
	char *headings = read_whole(table, to, TABLE_MOST) ? strchr(to, '\n') : NULL;

	return headings ? headings + 1 : NULL;
}

static bool say_segments(char *rows)
{
	for (char *row = rows, *end; (end = strchr(row, '\n')); row = end + 1) {
		unsigned long long size;
		unsigned mode, attached, owner, group, maker, group_of_maker;
		int key, number;

		*end = 0;
		/* Who made or used it last, and when, is not saved. */
		if (sscanf(row, "%d %d %o %llu %*u %*u %u %u %u %u %u", &key, &number, &mode, &size, &attached, &owner, &group, &maker,
			   &group_of_maker) != 9)
			return refuse("its System V shared memory cannot be read");
		say("segment %d key %d mode %o size %llu attached %u owner %u %u maker %u %u\n", number, key, mode, size, attached, owner,
		    group, maker, group_of_maker);
	}
	return true;
}

bool say_system_v(void)
{
	static char rows[TABLE_MOST];
	struct stat now;

	if (stat(of_process("ns/ipc"), &now) || now.st_ino != space)
		return refuse("it has left its IPC namespace, or its System V objects cannot be seen");
	if (!is_own)
		return true;
	for (int i = KINDS - 1; i >= 0; i--) {
		char *found = rows_of(tables[i], rows);

		if (!found)
			return refuse("its System V objects cannot be seen");
		if (i > 0 && *found)
			return refuse("it has System V semaphores or message queues");
		if (i == 0 && !say_segments(found))
			return false;
	}
	return true;
}
