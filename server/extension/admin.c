/*-------------------------------------------------------------------------
 *
 * admin.c
 *		The parts of the administrator's functions that SQL cannot do: make and
 *		wrap keys, move values to another key.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include "miscadmin.h"
#include "utils/builtins.h"

#define WRAPPED_BYTES PGSEAL_COLUMN_WRAPPED_BYTES

static void
check_code(int code, const char *doing)
{
	if (code != PGSEAL_COLUMN_OK)
		ereport(ERROR,
				(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
				 errmsg("cannot %s: %s", doing, pgseal_column_error_text(code))));
}

static void
need_superuser(void)
{
	if (!superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("only a superuser may handle the keys of pgseal")));
}

static bytea *
bytea_of(const uint8 *bytes, size_t len)
{
	bytea	   *result = palloc(VARHDRSZ + len);

	SET_VARSIZE(result, VARHDRSZ + len);
	memcpy(VARDATA(result), bytes, len);
	return result;
}

/* (count): random bytes */
PG_FUNCTION_INFO_V1(pgseal_random_bytes);
Datum
pgseal_random_bytes(PG_FUNCTION_ARGS)
{
	uint8		bytes[64];
	int			count = PG_GETARG_INT32(0);

	if (count < 1 || count > (int) sizeof(bytes))
		elog(ERROR, "pgseal: 1 to 64 random bytes");
	check_code(pgseal_column_random(bytes, count), "make random bytes");
	PG_RETURN_BYTEA_P(bytea_of(bytes, count));
}

/* (domain id, version, protection, salt): a new column key, wrapped */
PG_FUNCTION_INFO_V1(pgseal_wrap_new);
Datum
pgseal_wrap_new(PG_FUNCTION_ARGS)
{
	uint64		id = (uint64) PG_GETARG_INT64(0);
	uint32		version = PG_GETARG_INT32(1);
	bool		by_passphrase = strcmp(text_to_cstring(PG_GETARG_TEXT_PP(2)), "passphrase") == 0;
	bytea	   *salt = PG_GETARG_BYTEA_PP(3);
	uint8		wrapped[WRAPPED_BYTES];
	uint8		request[12];
	pgseal_column_kek *kek;
	int			code;

	need_superuser();
	if (!by_passphrase)
	{
		memcpy(request, &id, 8);
		memcpy(request + 8, &version, 4);
		pgseal_run_helper("wrap-new", NULL, request, sizeof(request), wrapped, sizeof(wrapped));
		PG_RETURN_BYTEA_P(bytea_of(wrapped, sizeof(wrapped)));
	}
	if (pgseal_passphrase == NULL || *pgseal_passphrase == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION),
				 errmsg("this connection gave no passphrase"),
				 errhint("Give it in the options of the connection: -c pgseal.passphrase=...")));
	if (VARSIZE_ANY_EXHDR(salt) != PGSEAL_COLUMN_SALT_BYTES)
		elog(ERROR, "pgseal: a salt has %d bytes", PGSEAL_COLUMN_SALT_BYTES);
	check_code(pgseal_column_kek_from_passphrase((const uint8_t *) pgseal_passphrase, strlen(pgseal_passphrase),
												 (const uint8_t *) VARDATA_ANY(salt), PGSEAL_COLUMN_SALT_BYTES,
												 PGSEAL_COLUMN_ARGON2_MEMORY_KIB, PGSEAL_COLUMN_ARGON2_PASSES,
												 PGSEAL_COLUMN_ARGON2_LANES, &kek),
			   "derive a key from the passphrase");
	code = pgseal_column_wrap_new(kek, id, version, wrapped);
	pgseal_column_kek_free(kek);
	check_code(code, "wrap a new column key");
	PG_RETURN_BYTEA_P(bytea_of(wrapped, sizeof(wrapped)));
}

/* (domain id, version, wrapped, provider): the same column key under the key of another provider */
PG_FUNCTION_INFO_V1(pgseal_rewrap);
Datum
pgseal_rewrap(PG_FUNCTION_ARGS)
{
	uint64		id = (uint64) PG_GETARG_INT64(0);
	uint32		version = PG_GETARG_INT32(1);
	bytea	   *wrapped = PG_GETARG_BYTEA_PP(2);
	char	   *provider = text_to_cstring(PG_GETARG_TEXT_PP(3));
	uint8		request[12 + WRAPPED_BYTES];
	uint8		rewrapped[WRAPPED_BYTES];

	need_superuser();
	if (VARSIZE_ANY_EXHDR(wrapped) != WRAPPED_BYTES)
		elog(ERROR, "pgseal: a wrapped key has %d bytes", WRAPPED_BYTES);
	memcpy(request, &id, 8);
	memcpy(request + 8, &version, 4);
	memcpy(request + 12, VARDATA_ANY(wrapped), WRAPPED_BYTES);
	pgseal_run_helper("rewrap", provider, request, sizeof(request), rewrapped, sizeof(rewrapped));
	PG_RETURN_BYTEA_P(bytea_of(rewrapped, sizeof(rewrapped)));
}

/* (sealed value, from version, to version): the same value under another version of the key */
PG_FUNCTION_INFO_V1(pgseal_recrypt_value);
Datum
pgseal_recrypt_value(PG_FUNCTION_ARGS)
{
	CallSite   *site = pgseal_call_site(fcinfo);

	if (!pgseal_rotates_now())
		need_superuser();
	if (site->type == NULL)
		site->type = pgseal_type(get_fn_expr_argtype(fcinfo->flinfo, 0));
	PG_RETURN_DATUM(pgseal_recrypt(site->type, PG_GETARG_DATUM(0), PG_GETARG_INT32(1), PG_GETARG_INT32(2)));
}

/* (domain): whether the current user may decrypt */
PG_FUNCTION_INFO_V1(pgseal_may_decrypt_domain);
Datum
pgseal_may_decrypt_domain(PG_FUNCTION_ARGS)
{
	pgseal_refresh();
	PG_RETURN_BOOL(pgseal_may_decrypt(pgseal_domain(NameStr(*PG_GETARG_NAME(0)), false)));
}

/* (domain): loads the keys now, so that a missing key is an error here and not in a later query */
PG_FUNCTION_INFO_V1(pgseal_unlock);
Datum
pgseal_unlock(PG_FUNCTION_ARGS)
{
	pgseal_refresh();
	pgseal_keys_load(pgseal_domain(NameStr(*PG_GETARG_NAME(0)), false));
	PG_RETURN_VOID();
}
