/* A server as far as its WAL goes, step by step: lock | write SEGMENT PAGE LETTER | sync |
   flushed HEX | send | critical 0 or 1 | inserts 0 or 1. wal.rs says what must hold. The names
   below are those of the server's own functions and variables. */
#include "app.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

void *MyProc = &MyProc;
uint32_t CritSectionCount;
bool InRecovery;
bool enableFsync = true;
static bool inserts = true;
static uint64_t flushed;

bool RecoveryInProgress(void) { return false; }
bool XLogInsertAllowed(void) { return inserts; }
uint64_t GetFlushRecPtr(uint32_t *timeline) { *timeline = 1; return flushed; }
uint64_t GetWalRcvFlushRecPtr(uint64_t *start, uint32_t *timeline) { (void)start; *timeline = 0; return 0; }

int main(int argc, char **argv)
{
    int fd = -1, pair[2];
    char page[PAGE];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    for (int at = 1; at < argc; at++) {
        const char *step = argv[at];
        if (!strcmp(step, "lock")) {
            SAY(opens("postmaster.pid", O_CREAT | O_EXCL | O_RDWR));
        } else if (!strcmp(step, "write")) {
            char path[100];
            snprintf(path, sizeof path, "pg_wal/%s", argv[++at]);
            fd = open(path, O_CREAT | O_RDWR, 0600);
            int number = atoi(argv[++at]);
            memset(page, argv[++at][0], PAGE);
            SAY(pwrite(fd, page, PAGE, (off_t)number * PAGE));
        } else if (!strcmp(step, "sync")) {
            SAY(fdatasync(fd));
        } else if (!strcmp(step, "flushed")) {
            flushed = strtoull(argv[++at], NULL, 16);
        } else if (!strcmp(step, "send")) {
            SAY(send(pair[0], "x", 1, 0));
        } else if (!strcmp(step, "critical")) {
            CritSectionCount = atoi(argv[++at]);
        } else if (!strcmp(step, "inserts")) {
            inserts = atoi(argv[++at]);
        }
    }
    return 0;
}
