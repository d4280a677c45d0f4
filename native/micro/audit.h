/* Whether the kernel's objects tell what they are taken to tell. A member may come to mean something else in another kernel and keep its name;
 * then what was told before would be told again though it has changed.
 *
 * So in the first commit in which something is known, and in each 256th after it, all is asked for all the same. What would have been told is set
 * aside, and compared with that. Where it differs, and the objects have not changed meanwhile, they are *suspected*. */
#pragma once
#include "plan.h"

void begin_audit(void);
bool is_audit(void);

/* Something is known in the commit under way; that came to be. */
void note_known(void);
void count_audit(void);

/* Takes what was said of a part from `from` on off the text; what is asked of it comes next. */
void set_aside(int number, size_t from);

/* It has come, from `from` on. Does nothing where nothing was set aside of that part. */
void compare_told(const struct segment *s, int number, size_t from);

/* Something else of a part was asked, and is not what it is taken to be. */
void suspect(const struct segment *s, int number, const char *what);

/* False: refused. */
bool is_audit_well(void);
