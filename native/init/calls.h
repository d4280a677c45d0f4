/* System calls that change names, contents or attributes of files by path, and the seccomp filter that makes the kernel ask about them,
 * and about a process that is about to exit with a status other than 0 (ends.h).
 *
 * What a service writes through a descriptor (write, ftruncate, mmap) needs one that was opened for writing, which is seen here.
 */
#pragma once
#include <linux/seccomp.h>
#include <stdbool.h>

enum {
	/* Where an operand's directory comes from, if not from an argument of that number. */
	AT_CWD = -1,
	AT_DESCRIPTOR = -2,	/* there is no path: the argument `path` is a descriptor of the file itself */
	AT_ADDRESS = -3,	/* argument `path` is a struct sockaddr_un; relative to the working directory */
	NO_OPERAND = -4,
};

enum effect {
	OPENS = 1,	/* may create, and changes the content, if its flags say so */
	CREATES,	/* the name comes into being */
	REMOVES,	/* the name goes */
	CHANGES,	/* content or attributes */
	MOVES_FROM,	/* as REMOVES, and what lies below goes with it */
	MOVES_TO,
	ENTERS,		/* chroot: paths of the process begin elsewhere */
};

struct operand {
	signed char dir, path;	/* numbers of arguments, or one of the above */
	bool follows;		/* a symbolic link at the end */
	unsigned char effect;
};

struct call {
	int number;
	struct operand first, second;
	/* OPENS: argument with open(2)'s flags; -1: a pointer to struct open_how in argument 2; -2: as creat(2).
	 * CHANGES: argument with AT_SYMLINK_NOFOLLOW, or 0. MOVES_FROM: argument with RENAME_EXCHANGE, or 0. */
	signed char flags;
};

/* The call that a notification is about; NULL: none that is covered. */
const struct call *call_of(const struct seccomp_data *data);

/* It is about exit_group(2), whose status is not 0. */
bool is_end(const struct seccomp_data *data);

/* Write the filter, an array of struct sock_filter, to a descriptor. Returns 0 or an errno. */
int write_filter(int fd);
