/*-------------------------------------------------------------------------
 *
 * reseal.c
 *		Gives relations new file keys while the server runs.
 *
 * The library changes the header of a file (spec/sealed-file.md, section 6.1);
 * what is here has PostgreSQL write each page anew.  A background worker goes
 * through the relations, one segment of a fork in each transaction:
 *
 * 1. pgseal_reseal_begin(): from here on each page that any process writes gets
 *	  the newest key.
 * 2. Each page that has another key, by the tag blocks of the file, is read into
 *	  shared buffers, marked as dirty, and logged as a full-page image, because a
 *	  power cut may separate a page from its tag.  Then the buffers are written.
 * 3. pgseal_reseal_end(): if no page has another key, the library syncs the file
 *	  and drops the older key.  Otherwise step 2 is done again.
 *
 * Nothing is kept elsewhere: the headers say which files have two keys.  Whoever
 * is interrupted goes on from there (auto_reseal.c).
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_inherits.h"
#include "commands/dbcommands.h"
#include "common/relpath.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/bufmgr.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/smgr.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"
#if PG_VERSION_NUM >= 190000
#include "utils/wait_event.h"
#endif

#include "reseal.h"

#define GROUP_PAGES 256

/* Before a worker sleeps, it writes this many pages. */
#define BATCH 32

/* Nobody writes with the older key any more, so as a rule there is one round. */
#define ROUNDS 3

#if PG_VERSION_NUM >= 160000
typedef RelFileLocator FileName;
#define FILE_NAME(rel) ((rel)->rd_locator)
#define SAME_FILE(a, b) RelFileLocatorEquals(a, b)
#else
typedef RelFileNode FileName;
#define FILE_NAME(rel) ((rel)->rd_node)
#define SAME_FILE(a, b) RelFileNodeEquals(a, b)
#endif

/* server/pgseal-preload/src/file/reseal.rs */
static int	(*library_begin) (int fd) = NULL;
static int	(*library_end) (int fd) = NULL;
static int	(*library_others) (int fd, uint64_t group, uint8_t *bits) = NULL;
static int	(*library_state) (int fd, uint64_t *numbers) = NULL;
static void (*library_ended) (uint64_t failed) = NULL;
static void (*library_outcome) (uint64_t *numbers) = NULL;
static int	(*library_record) (const char *outcome, const char *detail) = NULL;
int			(*library_suite_of) (int fd, char *name, int *is_older) = NULL;

/* What the worker does, for the audit trail; NULL when its end is recorded. */
static char *unrecorded = NULL;

PGDLLEXPORT Datum pgseal_guard_reseal(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum pgseal_guard_file_keys(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum pgseal_guard_reseal_outcome(PG_FUNCTION_ARGS);
PGDLLEXPORT void pgseal_guard_reseal_main(Datum main_arg);

PG_FUNCTION_INFO_V1(pgseal_guard_reseal);
PG_FUNCTION_INFO_V1(pgseal_guard_file_keys);
PG_FUNCTION_INFO_V1(pgseal_guard_reseal_outcome);

void
find_library(void)
{
	library_begin = (int (*) (int)) dlsym(RTLD_DEFAULT, "pgseal_reseal_begin");
	library_end = (int (*) (int)) dlsym(RTLD_DEFAULT, "pgseal_reseal_end");
	library_others = (int (*) (int, uint64_t, uint8_t *)) dlsym(RTLD_DEFAULT, "pgseal_reseal_others");
	library_state = (int (*) (int, uint64_t *)) dlsym(RTLD_DEFAULT, "pgseal_reseal_state");
	library_ended = (void (*) (uint64_t)) dlsym(RTLD_DEFAULT, "pgseal_reseal_ended");
	library_outcome = (void (*) (uint64_t *)) dlsym(RTLD_DEFAULT, "pgseal_reseal_outcome");
	library_record = (int (*) (const char *, const char *)) dlsym(RTLD_DEFAULT, "pgseal_reseal_record");
	library_suite_of = (int (*) (int, char *, int *)) dlsym(RTLD_DEFAULT, "pgseal_suite_of");
	if (library_begin == NULL || library_end == NULL || library_others == NULL || library_state == NULL ||
		library_ended == NULL || library_outcome == NULL || library_record == NULL || library_suite_of == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this server has no library libpgseal.so that can give files new keys"),
				 errhint("Install libpgseal.so and pgseal_guard.so from the same release of pgseal, and restart the server.")));
}

static char *
path_of(Relation rel, ForkNumber fork, uint32 segment)
{
#if PG_VERSION_NUM >= 180000
	RelPathStr	path = relpathperm(FILE_NAME(rel), fork);
	const char *text = path.str;
#else
	const char *text = relpathperm(FILE_NAME(rel), fork);
#endif

	return segment == 0 ? pstrdup(text) : psprintf("%s.%u", text, segment);
}

/* Opens a segment; -1 if there is none. */
int
open_segment(const char *path)
{
	int			fd = OpenTransientFile(path, O_RDWR | PG_BINARY);

	if (fd < 0 && errno != ENOENT)
		ereport(ERROR,
				(errcode_for_file_access(), errmsg("could not open file \"%s\": %m", path)));
	return fd;
}

static void
library_failed(const char *path, int error)
{
	if (error == EOPNOTSUPP)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("file \"%s\" cannot get a new key while the server runs: its suite has no tags", path),
				 errhint("Change the suite with \"pgseal key renew --suite\" and run \"pgseal reseal --rewrite\", or stop the server and run \"pgseal rekey\".")));
	errno = error;
	ereport(ERROR,
			(errcode_for_file_access(), errmsg("could not give file \"%s\" a new key: %m", path),
			 errhint("The server's log may say more. SELECT pgseal.reseal(begun_only => true) goes on.")));
}

/* So many more pages were written: waits if that was too fast. */
void
keep_pace(Pace *pace, int64 pages)
{
	int64		batches = pace->pages / BATCH;

	pace->pages += pages;
	if (pace->pages / BATCH == batches)
		return;
	CHECK_FOR_INTERRUPTS();
	while (pace->pages_per_second > 0)
	{
		int64		wanted_us = pace->pages * INT64CONST(1000000) / pace->pages_per_second;
		long		left_ms = (long) ((wanted_us - (GetCurrentTimestamp() - pace->started)) / 1000);

		if (left_ms <= 0)
			break;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, Min(left_ms, 1000),
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

/* Has the server write a page anew. */
static void
touch_page(Relation rel, ForkNumber fork, BlockNumber block, BufferAccessStrategy strategy)
{
	/* Maps are hints: the server makes damaged pages of them anew. */
	bool		is_map = fork == FSM_FORKNUM || fork == VISIBILITYMAP_FORKNUM;
	Buffer		buffer = ReadBufferExtended(rel, fork, block, is_map ? RBM_ZERO_ON_ERROR : RBM_NORMAL, strategy);

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	START_CRIT_SECTION();
	MarkBufferDirty(buffer);
	/* After a crash an unlogged relation is made anew from its init fork. */
	if (RelationNeedsWAL(rel) || fork == INIT_FORKNUM)
		log_newpage_buffer(buffer, false);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buffer);
}

/*
 * Has the server write the pages of a segment that have another key than the newest.  Returns how
 * many.
 */
static int64
touch_pages(Relation rel, ForkNumber fork, uint32 segment, const char *path, int fd,
			BufferAccessStrategy strategy, Pace *pace)
{
	BlockNumber first = (BlockNumber) segment * RELSEG_SIZE;
	BlockNumber end = RelationGetNumberOfBlocksInFork(rel, fork);
	int64		touched = 0;

	for (uint64_t group = 0;; group++)
	{
		uint8_t		bits[GROUP_PAGES / 8];
		int			error = library_others(fd, group, bits);

		if (error == ENOENT)
			break;
		if (error != 0)
			library_failed(path, error);
		for (int i = 0; i < GROUP_PAGES; i++)
		{
			BlockNumber block = first + group * GROUP_PAGES + i;

			if ((bits[i / 8] & (1 << (i % 8))) == 0 || block >= end)
				continue;
			touch_page(rel, fork, block, strategy);
			touched++;
			keep_pace(pace, 1);
		}
		CHECK_FOR_INTERRUPTS();
	}
	return touched;
}

/* Gives one segment of a fork a new key.  The caller has a transaction. */
static void
reseal_segment(const Task *task, Oid relation, const FileName *file, ForkNumber fork, uint32 segment, Pace *pace)
{
	Relation	rel = try_relation_open(relation, AccessShareLock);
	BufferAccessStrategy strategy;
	char	   *path;
	int			fd;
	int			error;
	uint64_t	state[STATE_NUMBERS];

	if (rel == NULL)
		return;
	/* What has other files now was written with new keys. */
	if (!SAME_FILE(FILE_NAME(rel), *file))
	{
		relation_close(rel, AccessShareLock);
		return;
	}
	path = path_of(rel, fork, segment);
	fd = open_segment(path);
	/* EINVAL: the file has no header yet, because nothing was ever written to it. */
	if (fd < 0 || (error = library_state(fd, state)) == EINVAL)
	{
		if (fd >= 0)
			CloseTransientFile(fd);
		relation_close(rel, AccessShareLock);
		return;
	}
	if (error != 0)
		library_failed(path, error);
	if (is_wanted(task->which, state))
	{
		pgstat_report_activity(STATE_RUNNING,
							   psprintf("pgseal: resealing %s (relation %d of %d, pages so far: " INT64_FORMAT ")",
										path, pace->relation, pace->relations, pace->pages));
		error = library_begin(fd);
		if (error != 0)
			library_failed(path, error);
		strategy = GetAccessStrategy(BAS_VACUUM);
		for (int round = 0; round < ROUNDS; round++)
		{
			if (touch_pages(rel, fork, segment, path, fd, strategy, pace) > 0)
				FlushRelationBuffers(rel);
			error = library_end(fd);
			if (error != EAGAIN)
				break;
		}
		FreeAccessStrategy(strategy);
		if (error == EAGAIN)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("file \"%s\" keeps two keys: some of its pages could not be sealed with the newer one", path),
					 errhint("Run \"pgseal verify\", repair the relation, and reseal it again.")));
		if (error != 0)
			library_failed(path, error);
	}
	CloseTransientFile(fd);
	relation_close(rel, AccessShareLock);
}

/* A relation, and the files that it had when the worker looked at it. */
typedef struct Target
{
	FileName	file;
	uint32		segments[INIT_FORKNUM + 1];
} Target;

/* Looks at a relation; false if it has no files that can get new keys. */
static bool
look_at(Oid relation, Target *target)
{
	Relation	rel = try_relation_open(relation, AccessShareLock);
	bool		has_files = false;

	if (rel == NULL)
		return false;
	memset(target, 0, sizeof(*target));
	if (RELKIND_HAS_STORAGE(rel->rd_rel->relkind) && !RelationUsesLocalBuffers(rel) &&
		rel->rd_rel->relpersistence != RELPERSISTENCE_TEMP)
	{
		has_files = true;
		target->file = FILE_NAME(rel);
		for (ForkNumber fork = MAIN_FORKNUM; fork <= INIT_FORKNUM; fork++)
		{
			/* A last segment that is empty has a file, too. */
			if (smgrexists(RelationGetSmgr(rel), fork))
				target->segments[fork] = RelationGetNumberOfBlocksInFork(rel, fork) / RELSEG_SIZE + 1;
		}
	}
	relation_close(rel, AccessShareLock);
	return has_files;
}

/* Reports an error that is caught, and ends its transaction. */
void
end_of_attempt(void)
{
	HOLD_INTERRUPTS();
	EmitErrorReport();
	AbortCurrentTransaction();
	FlushErrorState();
	RESUME_INTERRUPTS();
}

static void
reseal_relation(const Task *task, Oid relation, Pace *pace, int64 *failed)
{
	Target		target;
	bool		has_files;

	StartTransactionCommand();
	has_files = look_at(relation, &target);
	CommitTransactionCommand();
	for (ForkNumber fork = MAIN_FORKNUM; has_files && fork <= INIT_FORKNUM; fork++)
	{
		for (uint32 segment = 0; segment < target.segments[fork]; segment++)
		{
			CHECK_FOR_INTERRUPTS();
			PG_TRY();
			{
				StartTransactionCommand();
				reseal_segment(task, relation, &target.file, fork, segment, pace);
				CommitTransactionCommand();
			}
			PG_CATCH();
			{
				if (geterrcode() == ERRCODE_QUERY_CANCELED)
					PG_RE_THROW();
				/* One damaged file does not keep the others from new keys. */
				end_of_attempt();
				(*failed)++;
			}
			PG_END_TRY();
		}
	}
}

static List *
with_indexes(List *found, Relation rel)
{
	return list_concat_unique_oid(found, RelationGetIndexList(rel));
}

/* A relation, its partitions, their indexes and TOAST tables. */
static List *
relations_of(Oid relation)
{
	List	   *found = NIL;
	ListCell   *cell;

	foreach(cell, find_all_inheritors(relation, AccessShareLock, NULL))
	{
		Relation	rel = try_relation_open(lfirst_oid(cell), NoLock);
		Oid			toast;

		if (rel == NULL)
			continue;
		found = list_append_unique_oid(found, RelationGetRelid(rel));
		toast = rel->rd_rel->reltoastrelid;
		if (rel->rd_rel->relhasindex)
			found = with_indexes(found, rel);
		relation_close(rel, NoLock);
		if (OidIsValid(toast) && (rel = try_relation_open(toast, AccessShareLock)) != NULL)
		{
			found = list_append_unique_oid(found, toast);
			found = with_indexes(found, rel);
			relation_close(rel, NoLock);
		}
	}
	return found;
}

/* Every relation of the database, and the shared ones. */
static List *
all_relations(void)
{
	Relation	catalog = table_open(RelationRelationId, AccessShareLock);
	TableScanDesc scan = table_beginscan_catalog(catalog, 0, NULL);
	List	   *found = NIL;
	HeapTuple	tuple;

	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_class row = (Form_pg_class) GETSTRUCT(tuple);

		if (RELKIND_HAS_STORAGE(row->relkind) && row->relpersistence != RELPERSISTENCE_TEMP)
			found = lappend_oid(found, row->oid);
	}
	table_endscan(scan);
	table_close(catalog, AccessShareLock);
	return found;
}

/*
 * A line of the audit trail for this worker; false if the trail is required and does not take it.
 */
static bool
record(const char *outcome, const char *more)
{
	char		detail[2 * NAMEDATALEN + 256];

	snprintf(detail, sizeof(detail), "%s%s", unrecorded, more);
	return library_record(outcome, detail) == 0;
}

/* The worker ends before its work is done. */
static void
record_interruption(int code, Datum arg)
{
	(void) code;
	(void) arg;
	if (unrecorded != NULL)
		(void) record("failed", ": interrupted");
}

/* Records the start.  The caller has a transaction. */
static void
record_start(const Task *task, MemoryContext whole)
{
	char	   *name = OidIsValid(task->relation) ? get_rel_name(task->relation) : NULL;
	char	   *role = OidIsValid(task->role) ? GetUserNameFromId(task->role, true) : NULL;
	char	   *what = name != NULL ? psprintf("relation %s", name) : pstrdup("all relations");

	if (OidIsValid(task->role))
		role = psprintf("for role %s", role != NULL ? role : "unknown");
	else
		role = pstrdup("by the server itself");
	unrecorded = MemoryContextStrdup(whole, psprintf("%s%s of database %s, %s", what,
													 task->which == OLDER_SUITE ? " in an older suite" : "",
													 get_database_name(task->database), role));
	if (!record("begun", ""))
	{
		unrecorded = NULL;
		ereport(FATAL,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pgseal: no file gets a new key, because the audit trail is required and did not take the line"),
				 errhint("The server's log says why; \"pgseal audit test\" tries it, as the server's user.")));
	}
	before_shmem_exit(record_interruption, (Datum) 0);
}

/* Records the end. */
static void
record_end(const char *outcome, const char *more)
{
	if (!record(outcome, more))
		ereport(WARNING,
				(errmsg("pgseal: the audit trail did not take the line about the end of this work")));
	unrecorded = NULL;
}

void
pgseal_guard_reseal_main(Datum main_arg)
{
	Task		task;
	Pace		pace = {0};
	List	   *found;
	List	   *relations;
	ListCell   *cell;
	int64		failed = 0;
	MemoryContext whole = AllocSetContextCreate(TopMemoryContext, "pgseal reseal", ALLOCSET_DEFAULT_SIZES);
	MemoryContext before;

	(void) main_arg;
	memcpy(&task, MyBgworkerEntry->bgw_extra, sizeof(task));
	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(task.database, InvalidOid,
											  task.any_database ? BGWORKER_BYPASS_ALLOWCONN : 0);
	find_library();

	StartTransactionCommand();
	record_start(&task, whole);
	found = OidIsValid(task.relation) ? relations_of(task.relation) : all_relations();
	before = MemoryContextSwitchTo(whole);
	relations = list_copy(found);
	MemoryContextSwitchTo(before);
	CommitTransactionCommand();

	pace.pages_per_second = task.pages_per_second;
	pace.started = GetCurrentTimestamp();
	pace.relations = list_length(relations);
	if (task.which == OLDER_SUITE)
		rewrite_relations(&task, relations, &pace, &failed);
	else
	{
		foreach(cell, relations)
		{
			pace.relation++;
			reseal_relation(&task, lfirst_oid(cell), &pace, &failed);
		}
	}
	library_ended((uint64_t) failed);

	if (failed == 0)
		record_end("done", psprintf(": " INT64_FORMAT " pages", pace.pages));
	else if (task.which == OLDER_SUITE)
		record_end("failed", psprintf(": " INT64_FORMAT " relations keep their older suite", failed));
	else
		record_end("failed", psprintf(": " INT64_FORMAT " files keep two keys, or their old one", failed));
	if (failed > 0 && task.which == OLDER_SUITE)
		ereport(FATAL,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pgseal: relations that keep their older suite: " INT64_FORMAT "; the messages before this one say why", failed),
				 errhint("SELECT pgseal.reseal(rewrite => true) goes on with them.")));
	if (failed > 0)
		ereport(FATAL,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pgseal: files that keep two keys, or their old one: " INT64_FORMAT "; the messages before this one say why", failed),
				 errhint("SELECT pgseal.reseal(begun_only => true) goes on with those that have two.")));
	if (task.which == OLDER_SUITE)
		ereport(LOG,
				(errmsg("pgseal: relations of " INT64_FORMAT " pages were made anew in the suite of new files",
						pace.pages)));
	else
		ereport(LOG,
				(errmsg("pgseal: " INT64_FORMAT " pages of %d relations were sealed with new keys", pace.pages,
						list_length(relations))));
	proc_exit(0);
}

void
expect_rights(void)
{
	if (!superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("only a superuser may handle the keys of pgseal")));
}

/*
 * The name under which the postmaster loads this module for a worker: below $libdir if it lies in
 * the server's directory of modules, whose path may be longer than a name may be; else its path.
 */
static const char *
own_name(void)
{
	static char name[sizeof(((BackgroundWorker *) NULL)->bgw_library_name)];
	const char *path,
			   *prefix = "";
	size_t		len = strlen(pkglib_path);
	Dl_info		info;

	path = dladdr((void *) own_name, &info) == 0 ? NULL : info.dli_fname;
	if (path != NULL && strncmp(path, pkglib_path, len) == 0 && path[len] == '/')
	{
		prefix = "$libdir";
		path += len;
	}
	if (path == NULL || snprintf(name, sizeof(name), "%s%s", prefix, path) >= (int) sizeof(name))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the path of pgseal_guard.so is too long for a background worker"),
				 errhint("Install pgseal_guard.so in the server's directory of modules.")));
	return name;
}

/* Whether a file in this state is to get a new key. */
bool
is_wanted(Which which, const uint64_t *state)
{
	switch (which)
	{
		case EVERY_FILE:
			return true;
		case BEGUN_FILES:
			return state[STATE_STAGE] != SETTLED;
		case OLDER_SUITE:
			return false;
		case DUE_FILES:
			return state[STATE_STAGE] != SETTLED || state[STATE_WRITES] >= state[STATE_DUE];
	}
	return false;
}

/* Starts a worker that gives files new keys; NULL if there is no room for it. */
BackgroundWorkerHandle *
start_worker(const Task *task)
{
	BackgroundWorker worker;
	BackgroundWorkerHandle *handle;

	describe_worker(&worker, "pgseal reseal", "pgseal_guard_reseal_main");
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_notify_pid = MyProcPid;
	StaticAssertStmt(sizeof(*task) <= BGW_EXTRALEN, "a task fits");
	memcpy(worker.bgw_extra, task, sizeof(*task));
	return RegisterDynamicBackgroundWorker(&worker, &handle) ? handle : NULL;
}

/* Fills in what all workers of this module have in common. */
void
describe_worker(BackgroundWorker *worker, const char *name, const char *function)
{
	memset(worker, 0, sizeof(*worker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker->bgw_start_time = BgWorkerStart_RecoveryFinished;
	snprintf(worker->bgw_name, sizeof(worker->bgw_name), "%s", name);
	snprintf(worker->bgw_type, sizeof(worker->bgw_type), "%s", name);
	snprintf(worker->bgw_library_name, sizeof(worker->bgw_library_name), "%s", own_name());
	snprintf(worker->bgw_function_name, sizeof(worker->bgw_function_name), "%s", function);
}

static bool
argument_is_true(FunctionCallInfo fcinfo, int n)
{
	return PG_NARGS() > n && !PG_ARGISNULL(n) && PG_GETARG_BOOL(n);
}

/*
 * (relation or NULL, pages per second, only files with two keys, only these and files whose key
 * comes near its limit, only relations with a file in an older suite, for how many seconds to wait
 * for the lock on one of these, name of a database): starts a worker.  Returns its process id.
 */
Datum
pgseal_guard_reseal(PG_FUNCTION_ARGS)
{
	BackgroundWorkerHandle *handle;
	BgwHandleStatus status;
	Task		task = {0};
	pid_t		pid;

	expect_rights();
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a standby cannot give its files new keys while it runs"),
				 errhint("Make the standby anew with pg_basebackup, or stop it and run \"pgseal rekey\".")));
	find_library();
	task.database = MyDatabaseId;
	task.role = GetUserId();
	task.relation = PG_ARGISNULL(0) ? InvalidOid : PG_GETARG_OID(0);
	task.pages_per_second = PG_ARGISNULL(1) ? 0 : PG_GETARG_INT32(1);
	if (argument_is_true(fcinfo, 2))
		task.which = BEGUN_FILES;
	if (argument_is_true(fcinfo, 3))
		task.which = DUE_FILES;
	if (argument_is_true(fcinfo, 4))
		task.which = OLDER_SUITE;
	task.lock_timeout_s = PG_NARGS() > 5 && !PG_ARGISNULL(5) ? PG_GETARG_INT32(5) : 60;
	if (PG_NARGS() > 6 && !PG_ARGISNULL(6))
	{
		if (OidIsValid(task.relation))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("a relation is one of this database")));
		/* One that allows no connections as well: nobody else can make its relations anew. */
		task.database = get_database_oid(text_to_cstring(PG_GETARG_TEXT_PP(6)), false);
		task.any_database = true;
	}
	if (task.pages_per_second < 0 || task.lock_timeout_s < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a number of pages or seconds is negative")));
	if (OidIsValid(task.relation) && get_rel_name(task.relation) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE), errmsg("there is no relation %u", task.relation)));

	handle = start_worker(&task);
	if (handle == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("there is no room for another background worker"),
				 errhint("Raise max_worker_processes, or wait until others end.")));
	status = WaitForBackgroundWorkerStartup(handle, &pid);
	if (status != BGWH_STARTED && status != BGWH_STOPPED)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES), errmsg("the background worker did not start")));
	if (status == BGWH_STOPPED)
		PG_RETURN_NULL();
	PG_RETURN_INT32((int32) pid);
}

/*
 * (relation): a row for each file of the relation that is sealed in pages: fork, segment, number of
 * the newest key, whether there is an older key, if there is one the pages that have the newest key
 * and those that have not, and about how many writes the key that seals has sealed.
 */
Datum
pgseal_guard_file_keys(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Oid			relation = PG_GETARG_OID(0);
	Relation	rel;
	Target		target;

	expect_rights();
	find_library();
	InitMaterializedSRF(fcinfo, 0);
	if (!look_at(relation, &target) || (rel = try_relation_open(relation, AccessShareLock)) == NULL)
		return (Datum) 0;
	for (ForkNumber fork = MAIN_FORKNUM; fork <= INIT_FORKNUM; fork++)
	{
		for (uint32 segment = 0; segment < target.segments[fork]; segment++)
		{
			char	   *path = path_of(rel, fork, segment);
			Datum		values[7] = {0};
			bool		nulls[7] = {0};
			uint64_t	state[STATE_NUMBERS];
			int			fd = open_segment(path);
			int			error = fd < 0 ? EINVAL : library_state(fd, state);

			if (fd >= 0)
				CloseTransientFile(fd);
			CHECK_FOR_INTERRUPTS();
			if (error == EINVAL)
				continue;
			if (error != 0)
			{
				errno = error;
				ereport(WARNING,
						(errcode_for_file_access(), errmsg("the keys of file \"%s\" are not known: %m", path),
						 errhint("Run \"pgseal verify\".")));
				continue;
			}
			values[0] = CStringGetTextDatum(forkNames[fork]);
			values[1] = Int32GetDatum((int32) segment);
			values[2] = Int64GetDatum((int64) state[0]);
			values[3] = BoolGetDatum(state[STATE_STAGE] != SETTLED);
			values[4] = Int64GetDatum((int64) state[2]);
			values[5] = Int64GetDatum((int64) state[3]);
			values[6] = Int64GetDatum((int64) state[STATE_WRITES]);
			nulls[4] = nulls[5] = state[STATE_STAGE] == SETTLED;
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
		}
	}
	relation_close(rel, AccessShareLock);
	return (Datum) 0;
}

/*
 * How many workers have come to their end since the server started, and how many files they have
 * left with two keys, or with their old one: two numbers.
 */
Datum
pgseal_guard_reseal_outcome(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	uint64_t	outcome[2];
	Datum		values[2];
	bool		nulls[2] = {0};

	expect_rights();
	find_library();
	InitMaterializedSRF(fcinfo, 0);
	library_outcome(outcome);
	values[0] = Int64GetDatum((int64) outcome[0]);
	values[1] = Int64GetDatum((int64) outcome[1]);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	return (Datum) 0;
}
