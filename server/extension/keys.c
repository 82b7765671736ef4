/*-------------------------------------------------------------------------
 *
 * keys.c
 *		Column keys: unwraps those of the catalog, with the helper or a
 *		passphrase, and makes handles that last as long as the backend.
 *
 * Unwrapped keys are kept in pages of their own (secret.c) together with their
 * wrapped form, so that after a change of the catalog the provider is asked for
 * new keys only.  A parallel worker gets the keys of its leader through the
 * hidden setting pgseal.worker_keys.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "optimizer/cost.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#define KEY_BYTES PGSEAL_COLUMN_KEY_BYTES
#define WRAPPED_BYTES PGSEAL_COLUMN_WRAPPED_BYTES

typedef struct RawKey
{
	uint64		domain;
	uint32		version;
	uint8		wrapped[WRAPPED_BYTES];
	uint8		raw[KEY_BYTES];
} RawKey;

/* The first pages have room for so many keys; for more keys, larger pages replace them. */
#define FIRST_KEYS 32

/* The bytes of one key in pgseal.worker_keys, which holds them in hexadecimal. */
#define EXPORT_BYTES (8 + 4 + WRAPPED_BYTES + KEY_BYTES)

static RawKey *store = NULL;
static int	stored = 0;
static int	capacity = 0;
static int	exported = 0;

/* Raises an error for a code of the cipher library. */
void
pgseal_fail(int code, SealedType *type, const char *doing)
{
	const char *text = pgseal_column_error_text(code);

	switch (code)
	{
		case PGSEAL_COLUMN_NOT_SEALED:
		case PGSEAL_COLUMN_OTHER_MODE:
		case PGSEAL_COLUMN_NOT_AUTHENTIC:
			pgseal_counts.failed++;
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("cannot %s a value of type %s (key domain %s): %s",
							doing, type->name, NameStr(type->domain_name), text),
					 errhint("The value was damaged or tampered with, or is of another type, key domain or database.")));
		case PGSEAL_COLUMN_NOT_APPROVED:
			ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("pgseal: %s", text)));
		case PGSEAL_COLUMN_NO_MEMORY:
			ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("pgseal: %s", text)));
		case PGSEAL_COLUMN_TOO_LONG:
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("cannot %s a value of type %s: %s", doing, type->name, text)));
		default:
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("cannot %s a value of type %s: %s", doing, type ? type->name : "?", text)));
	}
}

static RawKey *
find_raw(uint64 domain, const DomainKey *key)
{
	for (int i = 0; i < stored; i++)
		if (store[i].domain == domain && store[i].version == key->version &&
			memcmp(store[i].wrapped, key->wrapped, WRAPPED_BYTES) == 0)
			return &store[i];
	return NULL;
}

static void
add_raw(uint64 domain, uint32 version, const uint8 *wrapped, const uint8 *raw)
{
	RawKey	   *entry;

	if (stored == capacity)
	{
		int			more = Max(2 * capacity, FIRST_KEYS);
		RawKey	   *grown = pgseal_secret_alloc(sizeof(RawKey) * more);

		if (grown == NULL)
			ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("pgseal: no memory for column keys")));
		if (store != NULL)
			memcpy(grown, store, sizeof(RawKey) * stored);
		pgseal_secret_free(store, sizeof(RawKey) * capacity);
		store = grown;
		capacity = more;
	}
	entry = &store[stored++];
	entry->domain = domain;
	entry->version = version;
	memcpy(entry->wrapped, wrapped, WRAPPED_BYTES);
	memcpy(entry->raw, raw, KEY_BYTES);
}

/* ---- parallel workers ---- */

/* Hands the keys of this backend to its future parallel workers. */
void
pgseal_keys_export(void)
{
	char	   *hex;
	uint8	   *flat;
	uint8	   *p;
	size_t		len = (size_t) stored * EXPORT_BYTES;

	if (stored == 0 || IsParallelWorker() || IsInParallelMode() || !IsTransactionState())
		return;
	/*
	 * Without workers there is no need for a copy of the keys; the planner hook calls this for each
	 * query.
	 */
	if (max_parallel_workers_per_gather <= 0 || max_parallel_workers <= 0)
		return;
	/* A rollback of the transaction resets the setting. */
	if (exported == stored && pgseal_worker_keys != NULL && *pgseal_worker_keys != '\0')
		return;
	flat = p = palloc(len);
	for (int i = 0; i < stored; i++)
	{
		memcpy(p, &store[i].domain, 8);
		memcpy(p + 8, &store[i].version, 4);
		memcpy(p + 12, store[i].wrapped, WRAPPED_BYTES);
		memcpy(p + 12 + WRAPPED_BYTES, store[i].raw, KEY_BYTES);
		p += EXPORT_BYTES;
	}
	hex = palloc(2 * len + 1);
	hex[hex_encode((char *) flat, len, hex)] = '\0';
	pgseal_setting_worker_keys = true;
	PG_TRY();
	{
		SetConfigOption("pgseal.worker_keys", hex, PGC_USERSET, PGC_S_SESSION);
		exported = stored;
	}
	PG_FINALLY();
	{
		pgseal_setting_worker_keys = false;
		pgseal_column_wipe(flat, len);
		pgseal_column_wipe(hex, 2 * len);
	}
	PG_END_TRY();
	pfree(flat);
	pfree(hex);
}

static void
import_from_leader(void)
{
	static bool done = false;
	size_t		hex_len;
	uint8	   *flat;

	if (done || !IsParallelWorker())
		return;
	done = true;
	hex_len = pgseal_worker_keys ? strlen(pgseal_worker_keys) : 0;
	if (hex_len == 0 || hex_len % (2 * EXPORT_BYTES) != 0)
		return;
	flat = palloc(hex_len / 2);
	hex_decode(pgseal_worker_keys, hex_len, (char *) flat);
	for (size_t off = 0; off < hex_len / 2; off += EXPORT_BYTES)
	{
		uint64		domain;
		uint32		version;

		memcpy(&domain, flat + off, 8);
		memcpy(&version, flat + off + 8, 4);
		add_raw(domain, version, flat + off + 12, flat + off + 12 + WRAPPED_BYTES);
	}
	pgseal_column_wipe(flat, hex_len / 2);
	pfree(flat);
}

/* ---- loading ---- */

static void
unwrap_by_passphrase(SealedDomain *domain)
{
	pgseal_column_kek *kek;
	uint8		raw[KEY_BYTES];
	int volatile code;

	if (pgseal_passphrase == NULL || *pgseal_passphrase == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION),
				 errmsg("key domain %s is protected by a passphrase, and this connection gave none",
						NameStr(domain->name)),
				 errhint("Give it in the options of the connection: -c pgseal.passphrase=...")));
	code = pgseal_column_kek_from_passphrase((const uint8_t *) pgseal_passphrase, strlen(pgseal_passphrase),
											 domain->salt, sizeof(domain->salt),
											 PGSEAL_COLUMN_ARGON2_MEMORY_KIB, PGSEAL_COLUMN_ARGON2_PASSES,
											 PGSEAL_COLUMN_ARGON2_LANES, &kek);
	if (code != PGSEAL_COLUMN_OK)
		ereport(ERROR,
				(errmsg("cannot derive the key of key domain %s from the passphrase: %s",
						NameStr(domain->name), pgseal_column_error_text(code))));
	PG_TRY();
	{
		for (int i = 0; i < domain->nkeys && code == PGSEAL_COLUMN_OK; i++)
		{
			DomainKey  *key = &domain->keys[i];

			if (find_raw(domain->id, key) != NULL)
				continue;
			code = pgseal_column_unwrap(kek, domain->id, key->version, key->wrapped, WRAPPED_BYTES, raw);
			if (code == PGSEAL_COLUMN_OK)
				add_raw(domain->id, key->version, key->wrapped, raw);
		}
	}
	PG_FINALLY();
	{
		pgseal_column_wipe(raw, sizeof(raw));
		pgseal_column_kek_free(kek);
	}
	PG_END_TRY();
	if (code == PGSEAL_COLUMN_WRONG_KEK)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PASSWORD),
				 errmsg("wrong passphrase for key domain %s", NameStr(domain->name))));
	if (code != PGSEAL_COLUMN_OK)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("cannot unwrap a key of key domain %s: %s",
						NameStr(domain->name), pgseal_column_error_text(code))));
}

static void
unwrap_by_provider(SealedDomain *domain)
{
	const size_t record = 12 + WRAPPED_BYTES;
	uint8	   *input = palloc(domain->nkeys * record);
	uint8	   *raw = palloc(domain->nkeys * KEY_BYTES);
	int			wanted = 0;

	for (int i = 0; i < domain->nkeys; i++)
	{
		DomainKey  *key = &domain->keys[i];
		uint8	   *p = input + wanted * record;

		if (find_raw(domain->id, key) != NULL)
			continue;
		memcpy(p, &domain->id, 8);
		memcpy(p + 8, &key->version, 4);
		memcpy(p + 12, key->wrapped, WRAPPED_BYTES);
		wanted++;
	}
	if (wanted > 0)
	{
		PG_TRY();
		{
			pgseal_run_helper("unwrap", NULL, input, wanted * record, raw, (size_t) wanted * KEY_BYTES);
			for (int i = 0; i < wanted; i++)
			{
				uint32		version;

				memcpy(&version, input + i * record + 8, 4);
				add_raw(domain->id, version, input + i * record + 12, raw + i * KEY_BYTES);
			}
		}
		PG_CATCH();
		{
			pgseal_column_wipe(raw, (size_t) wanted * KEY_BYTES);
			PG_RE_THROW();
		}
		PG_END_TRY();
		pgseal_column_wipe(raw, (size_t) wanted * KEY_BYTES);
	}
	pfree(input);
	pfree(raw);
}

pgseal_column_key *
pgseal_key_version(SealedDomain *domain, uint32 version)
{
	for (int i = 0; i < domain->nkeys; i++)
		if (domain->keys[i].version == version)
			return domain->keys[i].handle;
	return NULL;
}

/* Makes a handle of every key of a domain. */
void
pgseal_keys_load(SealedDomain *domain)
{
	bool		missing = false;

	import_from_leader();
	for (int i = 0; i < domain->nkeys; i++)
		missing = missing || find_raw(domain->id, &domain->keys[i]) == NULL;
	if (missing)
	{
		if (domain->by_passphrase)
			unwrap_by_passphrase(domain);
		else
			unwrap_by_provider(domain);
	}
	for (int i = 0; i < domain->nkeys; i++)
	{
		DomainKey  *key = &domain->keys[i];
		RawKey	   *raw = find_raw(domain->id, key);
		int			code;

		if (key->handle != NULL)
			continue;
		if (raw == NULL)
			elog(ERROR, "pgseal: a key of domain %s was not unwrapped", NameStr(domain->name));
		code = pgseal_column_key_new(raw->raw, KEY_BYTES, domain->id, key->version, &key->handle);
		if (code != PGSEAL_COLUMN_OK)
			ereport(ERROR,
					(errmsg("cannot use a key of key domain %s: %s",
							NameStr(domain->name), pgseal_column_error_text(code))));
	}
	domain->random_key = pgseal_key_version(domain, domain->random_version);
	domain->lookup_key = pgseal_key_version(domain, domain->lookup_version);
	if (domain->random_key == NULL || domain->lookup_key == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("key domain %s has no key of version %u or %u in this database",
						NameStr(domain->name), domain->random_version, domain->lookup_version),
				 errhint("Restore schema _pgseal from a dump.")));
	pgseal_keys_export();
}
