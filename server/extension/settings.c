/*-------------------------------------------------------------------------
 *
 * settings.c
 *		The settings of the module.
 *
 * May use: nothing of the module.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include "access/parallel.h"
#include "utils/guc.h"

int			pgseal_format = FORM_PLAIN;
bool		pgseal_base_types = false;
char	   *pgseal_provider = NULL;
char	   *pgseal_helper = NULL;
char	   *pgseal_passphrase = NULL;
char	   *pgseal_pgcrypto_key = NULL;
char	   *pgseal_worker_keys = NULL;
bool		pgseal_setting_worker_keys = false;

static const struct config_enum_entry format_options[] = {
	{"plain", FORM_PLAIN, false},
	{"sealed", FORM_SEALED, false},
	{NULL, 0, false}
};

/*
 * A secret of the client is accepted from the connection's startup packet only, which no log and no
 * view shows.  A SET statement would be in both.
 */
static bool
check_secret(char **newval, void **extra, GucSource source)
{
	if (*newval == NULL || **newval == '\0' || InitializingParallelWorker)
		return true;
	if (source == PGC_S_CLIENT || source == PGC_S_TEST)
		return source == PGC_S_CLIENT;
	ereport(source >= PGC_S_INTERACTIVE ? ERROR : WARNING,
			(errcode(ERRCODE_CANT_CHANGE_RUNTIME_PARAM),
			 errmsg("a secret of pgseal can only be set when a connection starts"),
			 errdetail("Statements and configuration files end up in logs, views and backups."),
			 errhint("Set it in the connection's options: options='-c pgseal.passphrase=...' or PGOPTIONS."),
			 errhidestmt(true)));
	return false;
}

static bool
check_worker_keys(char **newval, void **extra, GucSource source)
{
	if (*newval == NULL || **newval == '\0' || InitializingParallelWorker || pgseal_setting_worker_keys)
		return true;
	GUC_check_errdetail("This setting belongs to pgseal itself.");
	return false;
}

static const char *
show_secret(void)
{
	return "(hidden)";
}

#define SECRET_FLAGS (GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE | GUC_NO_RESET_ALL)

void
pgseal_settings_init(void)
{
	DefineCustomEnumVariable("pgseal.format",
							 "How sealed values are written and read outside the server.",
							 "plain: decrypted. sealed: as ciphertext, for dumps and replication without a right to decrypt.",
							 &pgseal_format, FORM_PLAIN, format_options, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("pgseal.base_types",
							 "Results and parameters of clients' statements have the base types of sealed columns.",
							 "For drivers, which do not know the sealed types.",
							 &pgseal_base_types, false, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("pgseal.provider",
							   "Where the key that wraps the column keys comes from.",
							   "env:NAME, file:PATH or command:SHELL COMMAND, as for sealed clusters, or keyring:PATH.",
							   &pgseal_provider, "", PGC_SUSET, GUC_SUPERUSER_ONLY, NULL, NULL, NULL);
	DefineCustomStringVariable("pgseal.helper",
							   "Path of the program pgseal, which unwraps column keys.",
							   "Empty: the program of the library libpgseal.so that is loaded, else /usr/local/bin/pgseal or /usr/bin/pgseal.",
							   &pgseal_helper, "", PGC_SUSET, GUC_SUPERUSER_ONLY,
							   NULL, NULL, NULL);
	DefineCustomStringVariable("pgseal.passphrase",
							   "Passphrase of this connection, for key domains that are protected by one.",
							   "Can only be given in the options of the connection.",
							   &pgseal_passphrase, "", PGC_USERSET, SECRET_FLAGS,
							   check_secret, NULL, show_secret);
	DefineCustomStringVariable("pgseal.pgcrypto_key",
							   "Key of existing pgcrypto values, for moving them over.",
							   "Can only be given in the options of the connection.",
							   &pgseal_pgcrypto_key, "", PGC_USERSET, SECRET_FLAGS,
							   check_secret, NULL, show_secret);
	DefineCustomStringVariable("pgseal.worker_keys",
							   "Hands keys to parallel workers; belongs to pgseal itself.",
							   NULL,
							   &pgseal_worker_keys, "", PGC_USERSET, SECRET_FLAGS,
							   check_worker_keys, NULL, show_secret);
	MarkGUCPrefixReserved("pgseal");
}
