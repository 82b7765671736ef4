/*-------------------------------------------------------------------------
 *
 * raw.c
 *		pgcrypto's raw AES functions, with the same results, but the key schedule
 *		is kept between calls; and the migration from pgcrypto to sealed types.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include "catalog/pg_type.h"
#include "nodes/value.h"
#include "parser/parse_func.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

typedef struct RawSite
{
	MemoryContextCallback callback;
	pgseal_column_raw *handle;
	uint8	   *key;
	size_t		key_len;
	char	   *name;
	size_t		name_len;
} RawSite;

static void
forget_raw(void *arg)
{
	RawSite    *site = arg;

	pgseal_column_raw_free(site->handle);
	site->handle = NULL;
	if (site->key != NULL)
		pgseal_column_wipe(site->key, site->key_len);
}

/* The handle for a key and a cipher name; the call site keeps the last one. */
static pgseal_column_raw *
raw_handle(FunctionCallInfo fcinfo, const uint8 *key, size_t key_len, const char *name, size_t name_len)
{
	RawSite    *site = fcinfo->flinfo->fn_extra;
	MemoryContext context = fcinfo->flinfo->fn_mcxt;
	pgseal_column_raw *handle;
	int			mode;
	int			code;

	if (site != NULL && site->handle != NULL && site->key_len == key_len && site->name_len == name_len &&
		memcmp(site->key, key, key_len) == 0 && memcmp(site->name, name, name_len) == 0)
		return site->handle;
	if (pgseal_column_raw_mode(name, name_len, &mode) != PGSEAL_COLUMN_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("pgseal has no cipher \"%s\"", pnstrdup(name, name_len)),
				 errhint("It has aes, aes-cbc and aes-ecb, with /pad:pkcs or /pad:none; pgcrypto has others.")));
	if (site == NULL)
	{
		site = MemoryContextAllocZero(context, sizeof(RawSite));
		site->callback.func = forget_raw;
		site->callback.arg = site;
		MemoryContextRegisterResetCallback(context, &site->callback);
		fcinfo->flinfo->fn_extra = site;
	}
	else
	{
		forget_raw(site);
		if (site->key != NULL)
			pfree(site->key);
		if (site->name != NULL)
			pfree(site->name);
		site->key = NULL;
		site->name = NULL;
	}
	site->name = MemoryContextAlloc(context, name_len + 1);
	memcpy(site->name, name, name_len);
	site->name_len = name_len;
	site->key = MemoryContextAlloc(context, key_len + 1);
	memcpy(site->key, key, key_len);
	site->key_len = key_len;
	code = pgseal_column_raw_new(key, key_len, mode, &handle);
	if (code != PGSEAL_COLUMN_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("pgseal: %s", pgseal_column_error_text(code))));
	/* Last: a site is complete only with its handle. */
	return site->handle = handle;
}

#define BYTES(v) ((const uint8 *) VARDATA_ANY(v))

static bytea *
crypt(pgseal_column_raw *handle, bool encrypt, bytea *data, bytea *iv)
{
	size_t		len = VARSIZE_ANY_EXHDR(data);
	size_t		capacity = encrypt ? len + 16 : len;
	bytea	   *result = palloc(VARHDRSZ + capacity);
	size_t		written;
	int			code;

	code = (encrypt ? pgseal_column_raw_encrypt : pgseal_column_raw_decrypt)
		(handle, iv ? BYTES(iv) : NULL, iv ? VARSIZE_ANY_EXHDR(iv) : 0,
		 BYTES(data), len, (uint8 *) VARDATA(result), capacity, &written);
	if (code != PGSEAL_COLUMN_OK)
		ereport(ERROR,
				(errcode(ERRCODE_EXTERNAL_ROUTINE_INVOCATION_EXCEPTION),
				 encrypt && code == PGSEAL_COLUMN_BAD_RAW ?
				 errmsg("encrypt error: without padding the data must be a multiple of 16 bytes long") :
				 errmsg("%s error: %s", encrypt ? "encrypt" : "decrypt", pgseal_column_error_text(code))));
	SET_VARSIZE(result, VARHDRSZ + written);
	return result;
}

/* (data, key, type) or (data, key, iv, type) */
static Datum
raw(FunctionCallInfo fcinfo, bool encrypt)
{
	bool		with_iv = PG_NARGS() == 4;
	bytea	   *data = PG_GETARG_BYTEA_PP(0);
	bytea	   *key = PG_GETARG_BYTEA_PP(1);
	bytea	   *iv = with_iv ? PG_GETARG_BYTEA_PP(2) : NULL;
	text	   *name = PG_GETARG_TEXT_PP(with_iv ? 3 : 2);

	PG_RETURN_BYTEA_P(crypt(raw_handle(fcinfo, BYTES(key), VARSIZE_ANY_EXHDR(key),
									   VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name)), encrypt, data, iv));
}

PG_FUNCTION_INFO_V1(pgseal_encrypt);
Datum
pgseal_encrypt(PG_FUNCTION_ARGS)
{
	return raw(fcinfo, true);
}

PG_FUNCTION_INFO_V1(pgseal_decrypt);
Datum
pgseal_decrypt(PG_FUNCTION_ARGS)
{
	return raw(fcinfo, false);
}

/* ---- with the key of the connection ---- */

static void
need_pgcrypto_key(void)
{
	if (pgseal_pgcrypto_key == NULL || *pgseal_pgcrypto_key == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION),
				 errmsg("this connection gave no key of pgcrypto's values"),
				 errhint("Give it in the options of the connection: -c pgseal.pgcrypto_key=...")));
}

/*
 * (data, type): decrypt(data, key of the connection, type); a key that begins with \x is in
 * hexadecimal
 */
PG_FUNCTION_INFO_V1(pgseal_from_pgcrypto);
Datum
pgseal_from_pgcrypto(PG_FUNCTION_ARGS)
{
	bytea	   *data = PG_GETARG_BYTEA_PP(0);
	text	   *name = PG_GETARG_TEXT_PP(1);
	bytea	   *key;
	pgseal_column_raw *handle;

	need_pgcrypto_key();
	if (strncmp(pgseal_pgcrypto_key, "\\x", 2) != 0)
		handle = raw_handle(fcinfo, (const uint8 *) pgseal_pgcrypto_key, strlen(pgseal_pgcrypto_key),
							VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name));
	else
	{
		key = DatumGetByteaPP(DirectFunctionCall1(byteain, CStringGetDatum(pgseal_pgcrypto_key)));
		PG_TRY();
		{
			handle = raw_handle(fcinfo, BYTES(key), VARSIZE_ANY_EXHDR(key), VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name));
		}
		PG_CATCH();
		{
			pgseal_column_wipe(VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key));
			PG_RE_THROW();
		}
		PG_END_TRY();
		pgseal_column_wipe(VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key));
		pfree(key);
	}
	PG_RETURN_BYTEA_P(crypt(handle, false, data, NULL));
}

/*
 * (data, schema of pgcrypto, as bytes): pgp_sym_decrypt(data, passphrase of the connection), by
 * pgcrypto itself
 */
PG_FUNCTION_INFO_V1(pgseal_from_pgp);
Datum
pgseal_from_pgp(PG_FUNCTION_ARGS)
{
	Oid			args[2] = {BYTEAOID, TEXTOID};
	FmgrInfo   *function = fcinfo->flinfo->fn_extra;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	need_pgcrypto_key();
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("extension pgcrypto is not installed, and only it reads PGP values"),
				 errhint("CREATE EXTENSION pgcrypto")));
	if (function == NULL)
	{
		List	   *name = list_make2(makeString(pstrdup(NameStr(*PG_GETARG_NAME(1)))),
									  makeString(PG_GETARG_BOOL(2) ? "pgp_sym_decrypt_bytea" : "pgp_sym_decrypt"));

		function = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof(FmgrInfo));
		fmgr_info_cxt(LookupFuncName(name, 2, args, false), function, fcinfo->flinfo->fn_mcxt);
		fcinfo->flinfo->fn_extra = function;
	}
	return FunctionCall2(function, PG_GETARG_DATUM(0), CStringGetTextDatum(pgseal_pgcrypto_key));
}
