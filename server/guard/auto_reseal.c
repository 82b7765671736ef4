/*-------------------------------------------------------------------------
 *
 * auto_reseal.c
 *		Gives files new keys without being asked: those that have two keys,
 *		because a restart interrupted a resealing, and those whose key comes
 *		near the number of writes that a key may seal.
 *
 * A background worker looks at the header of each relation's file when the server
 * starts, and when the library says that a file has come near its limit
 * (server/pgseal-preload/src/file/usage.rs).  For each database with such files it
 * starts the worker of reseal.c, one after the other.  Nothing is kept elsewhere.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "common/relpath.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#if PG_VERSION_NUM >= 190000
#include "utils/wait_event.h"
#endif

#include "reseal.h"

/* How long a file that came near its limit may wait. */
#define NAP_MS 60000

/* Of pgseal.auto_reseal. */
enum
{
	AUTO_OFF,
	AUTO_BEGUN,
	AUTO_ON
};

static const struct config_enum_entry auto_options[] = {
	{"off", AUTO_OFF, false},
	{"begun", AUTO_BEGUN, false},
	{"on", AUTO_ON, false},
	{NULL, 0, false}
};

static int	auto_reseal = AUTO_ON;
static int	auto_pages_per_second = 5120;

/* server/pgseal-preload/src/file/reseal.rs */
static uint64_t (*library_asked) (void) = NULL;
static int	(*library_state) (int fd, uint64_t *numbers) = NULL;

/* A database of the cluster. */
typedef struct Database
{
	Oid			oid;
	bool		for_users;		/* allows connections, and is no template */
	bool		wanted;
} Database;

PGDLLEXPORT void pgseal_guard_auto_reseal_main(Datum main_arg);

/* Called when the server starts: settings, and the worker. */
void
register_auto_reseal(void)
{
	BackgroundWorker worker;

	DefineCustomEnumVariable("pgseal.auto_reseal",
							 "Which files get new keys without a command.",
							 "\"begun\": those of a resealing that was interrupted; \"on\": these, and those whose key has sealed 2^31 writes.",
							 &auto_reseal, AUTO_ON, auto_options, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgseal.auto_reseal_pages_per_second",
							"How many pages are sealed anew in a second, without a command.",
							"0 is no limit.",
							&auto_pages_per_second, 5120, 0, INT_MAX, PGC_SIGHUP, 0, NULL, NULL, NULL);
	if (!IsPostmasterEnvironment || IsBinaryUpgrade || dlsym(RTLD_DEFAULT, "pgseal_reseal_asked") == NULL)
		return;
	describe_worker(&worker, "pgseal auto reseal", "pgseal_guard_auto_reseal_main");
	worker.bgw_restart_time = 60;
	RegisterBackgroundWorker(&worker);
}

/* Whether a file is to get a new key. */
static bool
file_is_wanted(const char *path, Which which)
{
	uint64_t	state[STATE_NUMBERS];
	int			fd = OpenTransientFile(path, O_RDONLY | PG_BINARY);
	bool		wanted;

	/* It may be gone by now; what is damaged is reported to whoever reads it. */
	if (fd < 0)
		return false;
	wanted = library_state(fd, state) == 0 && is_wanted(which, state);
	CloseTransientFile(fd);
	return wanted;
}

/* Whether there is a file in a directory that is to get a new key. */
static bool
dir_is_wanted(const char *path, Which which)
{
	DIR		   *dir = AllocateDir(path);
	struct dirent *entry;
	bool		wanted = false;

	while (!wanted && (entry = ReadDirExtended(dir, path, DEBUG1)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		if (ShutdownRequestPending)
			break;
		/* A relation that is not temporary has a number for a name. */
		if (isdigit((unsigned char) entry->d_name[0]))
		{
			char	   *file = psprintf("%s/%s", path, entry->d_name);

			wanted = file_is_wanted(file, which);
			pfree(file);
		}
	}
	if (dir != NULL)
		FreeDir(dir);
	return wanted;
}

/* As dir_is_wanted(), for the files of a database in all tablespaces. */
static bool
database_is_wanted(Oid oid, Which which)
{
	DIR		   *spaces;
	struct dirent *entry;
	bool		wanted = dir_is_wanted(psprintf("base/%u", oid), which);

	if (wanted)
		return true;
	spaces = AllocateDir("pg_tblspc");
	while (!wanted && (entry = ReadDirExtended(spaces, "pg_tblspc", DEBUG1)) != NULL)
	{
		if (isdigit((unsigned char) entry->d_name[0]))
			wanted = dir_is_wanted(psprintf("pg_tblspc/%s/%s/%u", entry->d_name,
											TABLESPACE_VERSION_DIRECTORY, oid), which);
	}
	if (spaces != NULL)
		FreeDir(spaces);
	return wanted;
}

static List *
all_databases(MemoryContext context)
{
	List	   *found = NIL;
	Relation	catalog;
	TableScanDesc scan;
	HeapTuple	tuple;

	StartTransactionCommand();
	catalog = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(catalog, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database row = (Form_pg_database) GETSTRUCT(tuple);
		MemoryContext before = MemoryContextSwitchTo(context);
		Database   *database = palloc0(sizeof(Database));

		database->oid = row->oid;
		database->for_users = row->datallowconn && !row->datistemplate;
		found = lappend(found, database);
		MemoryContextSwitchTo(before);
	}
	table_endscan(scan);
	table_close(catalog, AccessShareLock);
	CommitTransactionCommand();
	return found;
}

/* Has a worker give the files of one database, and the shared ones, new keys. */
static void
work_on(Oid database, Which which)
{
	Task		task = {0};
	BackgroundWorkerHandle *handle;

	task.database = database;
	task.pages_per_second = auto_pages_per_second;
	task.which = which;
	task.any_database = true;
	handle = start_worker(&task);
	if (handle == NULL)
	{
		ereport(WARNING,
				(errmsg("pgseal: files of database %u are to get new keys, and there is no room for another background worker", database),
				 errhint("Raise max_worker_processes, or run \"pgseal reseal\" later.")));
		return;
	}
	ereport(LOG, (errmsg("pgseal: files of database %u get new keys", database)));
	(void) WaitForBackgroundWorkerShutdown(handle);
	pfree(handle);
}

/* Looks at all files, and has those get new keys that are to. */
static void
look_at_all(Which which)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "pgseal auto reseal", ALLOCSET_DEFAULT_SIZES);
	MemoryContext before = MemoryContextSwitchTo(context);
	List	   *databases = all_databases(context);
	bool		shared = dir_is_wanted("global", which);
	ListCell   *cell;

	MemoryContextSwitchTo(context);
	foreach(cell, databases)
	{
		Database   *database = lfirst(cell);

		database->wanted = database_is_wanted(database->oid, which);
		shared = shared && !database->wanted;
	}
	/* Any database will do for files that all share. */
	foreach(cell, databases)
	{
		Database   *database = lfirst(cell);

		if (shared && database->for_users)
		{
			database->wanted = true;
			shared = false;
		}
	}
	foreach(cell, databases)
	{
		Database   *database = lfirst(cell);

		if (database->wanted && !ShutdownRequestPending)
			work_on(database->oid, which);
	}
	MemoryContextSwitchTo(before);
	MemoryContextDelete(context);
}

void
pgseal_guard_auto_reseal_main(Datum main_arg)
{
	/* What was looked for last, and how often the library had asked by then. */
	int			looked_for = AUTO_OFF;
	uint64_t	answered = 0;

	(void) main_arg;
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	library_asked = (uint64_t (*) (void)) dlsym(RTLD_DEFAULT, "pgseal_reseal_asked");
	library_state = (int (*) (int, uint64_t *)) dlsym(RTLD_DEFAULT, "pgseal_reseal_state");
	if (library_asked == NULL || library_state == NULL)
		proc_exit(0);

	while (!ShutdownRequestPending)
	{
		uint64_t	asked = library_asked();

		if (auto_reseal > looked_for || (auto_reseal == AUTO_ON && asked != answered))
		{
			look_at_all(auto_reseal == AUTO_ON ? DUE_FILES : BEGUN_FILES);
			answered = asked;
		}
		looked_for = auto_reseal;
		if (ShutdownRequestPending)
			break;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, NAP_MS, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
	}
	/* Not 0: the postmaster starts it again, unless the server stops. */
	proc_exit(1);
}
