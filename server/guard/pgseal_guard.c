/*-------------------------------------------------------------------------
 *
 * pgseal_guard.c
 *		Keeps PostgreSQL from running on a sealed data directory without
 *		the library libpgseal.so, or with settings under which sealing
 *		would be unsafe.
 *
 * Loaded through shared_preload_libraries.  That is early enough: the
 * postmaster has taken its lock file and read pg_control by then, and has
 * not written anything else.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dlfcn.h>
#include <unistd.h>

#include "access/xlog.h"
#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/syslogger.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"

#include "reseal.h"

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 200000
#error "pgseal_guard is written for PostgreSQL 15 to 19"
#endif

/*
 * Betas of 19 had functions that switch data checksums on and off while the
 * server runs; 19rc1 has none.  For a server with these functions, this module
 * would need a hook that refuses to switch checksums off (object_access_hook,
 * OAT_FUNCTION_EXECUTE).
 */
#ifdef F_PG_DISABLE_DATA_CHECKSUMS
#error "this server can switch data checksums off while it runs, which pgseal_guard does not refuse yet"
#endif

PG_MODULE_MAGIC;

/* Version of the functions below; libpgseal.so must report the same. */
#define PGSEAL_ABI 4

typedef uint32_t (*pgseal_abi_fn) (void);
typedef int (*pgseal_needs_full_page_images_fn) (void);
typedef int (*pgseal_needs_data_checksums_fn) (void);
typedef void (*pgseal_data_checksums_are_off_fn) (void);
typedef void (*pgseal_settings_are_fn) (int (*ask) (void));
typedef const char *(*pgseal_io_method_refused_fn) (const char *io_method);
typedef void (*pgseal_guard_hello_fn) (void);
typedef const char *(*pgseal_start_line_fn) (void);

/* Declared in a header from 16 on only. */
extern PGDLLIMPORT bool redirection_done;

static GucBoolCheckHook previous_check_hook = NULL;
static pgseal_needs_full_page_images_fn images_needed = NULL;
static emit_log_hook_type previous_log_hook = NULL;

/* The line about the sealed cluster, until it is logged. */
static const char *start_line = NULL;

void		_PG_init(void);

/*
 * The address of a function of libpgseal.so, which is in the global scope
 * because it is preloaded; NULL if there is none.
 */
static void *
library_function(const char *name)
{
	return dlsym(RTLD_DEFAULT, name);
}

/* The same, for functions that every library with our ABI version has. */
static void *
required_function(const char *name)
{
	void	   *function = library_function(name);

	if (function == NULL)
		ereport(FATAL,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("the library libpgseal.so has no function %s", name),
				 errhint("Install libpgseal.so and pgseal_guard.so from the same release of pgseal.")));
	return function;
}

/* Logs the line about the sealed cluster, once. */
static void
log_start_line(void)
{
	const char *line = start_line;

	start_line = NULL;
	ereport(LOG, (errmsg_internal("%s", line)));
}

/*
 * The logging collector starts after this module is loaded.  The postmaster's
 * first message that goes to it ("starting PostgreSQL ...") takes the line along.
 */
static void
log_with_collector(ErrorData *edata)
{
	if (start_line != NULL && redirection_done && MyProcPid == PostmasterPid)
		log_start_line();
	if (previous_log_hook != NULL)
		previous_log_hook(edata);
}

/* Sees to it that the line about the sealed cluster gets into the server's log. */
static void
announce(const char *line)
{
	/* A server of one user and initdb talk to a person, who has just named the directory. */
	if (line == NULL || !IsPostmasterEnvironment)
		return;
	start_line = line;
	if (!Logging_collector)
	{
		log_start_line();
		return;
	}
	previous_log_hook = emit_log_hook;
	emit_log_hook = log_with_collector;
}

/* Whether a setting exists in this server and has this value. */
static bool
setting_is(const char *name, const char *value)
{
	const char *setting = GetConfigOption(name, true, false);

	return setting != NULL && strcmp(setting, value) == 0;
}

static struct config_generic *
find_setting(const char *name)
{
#if PG_VERSION_NUM >= 160000
	return find_option(name, false, true, LOG);
#else
	struct config_generic **settings = get_guc_variables();
	int			count = GetNumConfigOptions();

	for (int i = 0; i < count; i++)
	{
		if (strcmp(settings[i]->name, name) == 0)
			return settings[i];
	}
	return NULL;
#endif
}

/*
 * Whether data checksums are known to be off.
 *
 * ReadControlFile() sets data_checksums, with a source other than
 * PGC_S_DEFAULT, so the source tells whether the control file has been read.
 * DataChecksumsEnabled() would follow a null pointer before that.
 */
static bool
checksums_are_off(void)
{
#if PG_VERSION_NUM >= 190000
	/* Betas of 19 have an enum with a show hook; its text works for both. */
	const char *state = GetConfigOptionByName("data_checksums", NULL, true);

	return state != NULL && strcmp(state, "on") != 0;
#else
	struct config_generic *setting = find_setting("data_checksums");

	if (setting == NULL || setting->source == PGC_S_DEFAULT)
		return false;
	return !DataChecksumsEnabled();
#endif
}

/*
 * full_page_writes is checked at the start, so a reload or ALTER SYSTEM must not
 * switch it off afterwards.
 */
static bool
check_full_page_writes(bool *newval, void **extra, GucSource source)
{
	/* The suite may have changed since the start. */
	if (!*newval && images_needed() != 0)
	{
		GUC_check_errmsg("full_page_writes cannot be switched off: this data directory is sealed by pgseal");
		GUC_check_errdetail("A page and its authentication tag can reach the disk at different moments; only full-page images repair that after a crash.");
		GUC_check_errhint("Leave full_page_writes on, or use a cluster made with --suite aes-256-xts.");
		return false;
	}
	return previous_check_hook == NULL || previous_check_hook(newval, extra, source);
}

static void
watch_full_page_writes(void)
{
	struct config_generic *setting = find_setting("full_page_writes");
	GucBoolCheckHook *hook;

	if (setting == NULL || setting->vartype != PGC_BOOL)
		ereport(FATAL,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("pgseal cannot watch over full_page_writes: this server has no such setting"),
				 errhint("Use a release of pgseal that knows this version of PostgreSQL.")));
#if PG_VERSION_NUM >= 190000
	hook = &setting->_bool.check_hook;
#else
	hook = &((struct config_bool *) setting)->check_hook;
#endif
	previous_check_hook = *hook;
	*hook = check_full_page_writes;
}

/*
 * A standby replays the WAL of its primary.  The WAL of a sealed primary always
 * contains full-page images; that of a plain primary need not.  pg_control says
 * whether full_page_writes was on at the last checkpoint that was replayed, or at
 * the checkpoint with which the base backup began, and whether the primary had
 * wal_log_hints on.  After a clean shutdown there is no older WAL to replay, so
 * the check is skipped; pg_upgrade leaves such a cluster, whose last checkpoint
 * was made with full_page_writes off.
 */
static void
insist_on_full_page_images_of_the_primary(bool has_checksums)
{
	bool		crc_ok;
	ControlFileData *control;
	bool		images;
	bool		hints;
	DBState		state;

	if (access("standby.signal", F_OK) != 0 && access("recovery.signal", F_OK) != 0)
		return;

	control = get_controlfile(DataDir, &crc_ok);
	images = control->checkPointCopy.fullPageWrites;
	hints = has_checksums || control->wal_log_hints;
	state = control->state;
	pfree(control);

	/* If the control file is damaged, the server itself reports it. */
	if (!crc_ok || state == DB_SHUTDOWNED)
		return;

	if (!images)
		ereport(FATAL,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the WAL that is to be replayed here was written with full_page_writes = off, and this data directory is sealed by pgseal with a suite that needs it"),
				 errdetail("After a crash, pages that were being written could not be repaired."),
				 errhint("Set full_page_writes = on on the primary, run CHECKPOINT there and make this data directory anew, or make it with PGSEAL_SUITE=aes-256-xts.")));
	if (!hints)
		ereport(FATAL,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the WAL that is to be replayed here was written with wal_log_hints = off and without data checksums, and this data directory is sealed by pgseal with a suite that needs one of the two"),
				 errdetail("After a crash, pages that were being written could not be repaired."),
				 errhint("Set wal_log_hints = on on the primary, restart it and make this data directory anew, or make it with PGSEAL_SUITE=aes-256-xts.")));
}

/*
 * Suites other than XTS store a nonce or a tag for each page elsewhere in the
 * file.  After a crash, page and tag may not fit together; WAL replay must then
 * restore the page from a full-page image.  The server writes such images for
 * changed hint bits as well (XLogHintBitIsNeeded) if it has data checksums, or
 * if wal_log_hints is on, which only a restart changes.
 *
 * With GCM, wal_log_hints is enough: a page that changed does not authenticate.
 * With CTR, only data checksums find that.
 */
static void
insist_on_full_page_images(void)
{
	bool		has_checksums = !checksums_are_off();

	if (!has_checksums)
	{
		pgseal_needs_data_checksums_fn needs_data_checksums = (pgseal_needs_data_checksums_fn)
			required_function("pgseal_needs_data_checksums");

		if (needs_data_checksums() != 0)
			ereport(FATAL,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("this data directory is sealed by pgseal with a suite that needs data checksums, and they are off"),
					 errhint("Switch them on with \"pgseal run -- pg_checksums --enable -D DIR\", or use a cluster made with --suite aes-256-gcm or aes-256-xts.")));
	}

	/*
	 * pg_upgrade starts the new cluster with full_page_writes=off, and with
	 * fsync=off beside it: after a crash that cluster is thrown away anyway.
	 */
	if (IsBinaryUpgrade)
		return;

	if (!has_checksums && !setting_is("wal_log_hints", "on"))
		ereport(FATAL,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this data directory is sealed by pgseal with a suite that needs wal_log_hints or data checksums, and both are off"),
				 errdetail("After a crash, a page of which only hint bits had changed could not be repaired."),
				 errhint("Set wal_log_hints = on, or switch data checksums on with \"pgseal run -- pg_checksums --enable -D DIR\", or use a cluster made with --suite aes-256-xts.")));
	if (!fullPageWrites)
		ereport(FATAL,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this data directory is sealed by pgseal with a suite that needs full_page_writes, and it is off"),
				 errhint("Set full_page_writes = on, or use a cluster made with --suite aes-256-xts.")));
	insist_on_full_page_images_of_the_primary(has_checksums);
}

/* Bits of settings_for_suites(), which server/pgseal-preload/src/keys/settings.rs has, too. */
#define SETTING_FULL_PAGE_WRITES 1
#define SETTING_HINT_BITS_ARE_LOGGED 2
#define SETTING_DATA_CHECKSUMS 4

/*
 * What the server's settings allow.  The library asks for it in the postmaster,
 * when "pgseal key renew --suite" changes the suite of new files.
 */
static int
settings_for_suites(void)
{
	bool		has_checksums = !checksums_are_off();
	bool		images = fullPageWrites;
	bool		hints = has_checksums || setting_is("wal_log_hints", "on");

	if (access("standby.signal", F_OK) == 0 || access("recovery.signal", F_OK) == 0)
	{
		bool		crc_ok;
		ControlFileData *control = get_controlfile(DataDir, &crc_ok);

		images = images && crc_ok && control->checkPointCopy.fullPageWrites;
		hints = hints && crc_ok && (has_checksums || control->wal_log_hints);
		pfree(control);
	}
	return (images ? SETTING_FULL_PAGE_WRITES : 0) |
		(hints ? SETTING_HINT_BITS_ARE_LOGGED : 0) |
		(has_checksums ? SETTING_DATA_CHECKSUMS : 0);
}

/*
 * Tells the library that there are no data checksums.  A base backup cannot
 * verify pages then, so the library fails its reads of damaged ones.
 */
static void
tell_checksums(void)
{
	if (checksums_are_off())
	{
		pgseal_data_checksums_are_off_fn data_checksums_are_off = (pgseal_data_checksums_are_off_fn)
			required_function("pgseal_data_checksums_are_off");

		data_checksums_are_off();
	}
}

/* I/O that does not pass through the C library cannot be sealed. */
static void
refuse_hidden_io(void)
{
	const char *io_method = GetConfigOption("io_method", true, false);

	/*
	 * io_method exists from 18 on.  The library decides, because it knows
	 * which I/O calls it intercepts.
	 */
	if (io_method != NULL)
	{
		pgseal_io_method_refused_fn io_method_refused = (pgseal_io_method_refused_fn)
			required_function("pgseal_io_method_refused");
		const char *remedy = io_method_refused(io_method);

		if (remedy != NULL)
			ereport(FATAL,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("pgseal cannot seal what is written with io_method = %s", io_method),
					 errhint("%s", remedy)));
	}
	if (setting_is("dynamic_shared_memory_type", "mmap"))
		ereport(FATAL,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("pgseal cannot seal dynamic shared memory in files of the data directory"),
				 errhint("Set dynamic_shared_memory_type = posix.")));
}

void
_PG_init(void)
{
	pgseal_abi_fn abi;
	pgseal_settings_are_fn settings_are;
	pgseal_guard_hello_fn guard_hello;
	pgseal_start_line_fn library_line;
	uint32_t	library_abi;

	if (!process_shared_preload_libraries_in_progress)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pgseal_guard can only be loaded when the server starts"),
				 errhint("Add pgseal_guard to shared_preload_libraries and restart the server.")));

	abi = (pgseal_abi_fn) library_function("pgseal_abi");
	if (abi == NULL)
		ereport(FATAL,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this data directory is sealed by pgseal, and the library libpgseal.so is not loaded"),
				 errhint("Start the server with \"pgseal run -- pg_ctl start ...\", or put the variables that \"pgseal env\" prints into its environment.")));

	library_abi = abi();
	if (library_abi != PGSEAL_ABI)
		ereport(FATAL,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("libpgseal.so has interface version %u, and pgseal_guard.so needs version %u",
						library_abi, (uint32_t) PGSEAL_ABI),
				 errhint("Install libpgseal.so and pgseal_guard.so from the same release of pgseal.")));

	images_needed = (pgseal_needs_full_page_images_fn)
		required_function("pgseal_needs_full_page_images");
	settings_are = (pgseal_settings_are_fn) required_function("pgseal_settings_are");
	guard_hello = (pgseal_guard_hello_fn) required_function("pgseal_guard_hello");
	library_line = (pgseal_start_line_fn) required_function("pgseal_start_line");

	if (images_needed() != 0)
		insist_on_full_page_images();
	/* pg_upgrade starts the new cluster with full_page_writes=off. */
	if (!IsBinaryUpgrade)
		watch_full_page_writes();
	settings_are(settings_for_suites);
	tell_checksums();
	refuse_hidden_io();

	guard_hello();
	if (library_line() != NULL)
		register_auto_reseal();
	announce(library_line());
}
