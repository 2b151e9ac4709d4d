/* The processes of clt_compile_processes: their requests, and the loop in which they serve them. */
#ifndef CLT_DEVICE_PROGRAM_COMPILE_HELPERS_H
#define CLT_DEVICE_PROGRAM_COMPILE_HELPERS_H

#include <stdbool.h>
#include <stddef.h>

/* Returns how many helpers there are. */
int clt_helpers_count(void);

/* Lets helpers serve the requests, in any order. Sets done[i] if request i succeeded. `report` is
 * called after request `number`, the finished-th one. Other threads wait for their turn. */
void clt_helpers_serve(const char *const *requests, int count, bool *done,
                       void (*report)(void *user, int number, int finished), void *user);

/* The helper's loop: reads requests from the socket and answers them, until the socket is closed.
 */
void clt_helper_run(int socket);

/* Reads or writes all bytes. False: the other side has ended. */
bool clt_helper_read(int socket, void *data, size_t bytes);
bool clt_helper_write(int socket, const void *data, size_t bytes);

/* What a helper answers. */
enum { CLT_HELPER_FAILED = 'n', CLT_HELPER_DONE = 'y' };

#endif
