/*-------------------------------------------------------------------------
 *
 * base.c
 *		Base types: their codes in the ciphers, and their functions.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include "catalog/pg_type.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

/* The code of a base type that has none of its own: this number plus its OID. */
#define OTHER_TYPE_CODES 65536

/* The code of a base type, which the ciphers bind into each value. */
uint32
pgseal_base_code(Oid base)
{
	switch (base)
	{
		case INT4OID:
			return PGSEAL_COLUMN_TYPE_INT4;
		case INT8OID:
			return PGSEAL_COLUMN_TYPE_INT8;
		case DATEOID:
			return PGSEAL_COLUMN_TYPE_DATE;
		case TIMESTAMPOID:
			return PGSEAL_COLUMN_TYPE_TIMESTAMP;
		case TIMESTAMPTZOID:
			return PGSEAL_COLUMN_TYPE_TIMESTAMPTZ;
		case NUMERICOID:
			return PGSEAL_COLUMN_TYPE_NUMERIC;
		case TEXTOID:
			return PGSEAL_COLUMN_TYPE_TEXT;
		case BYTEAOID:
			return PGSEAL_COLUMN_TYPE_BYTEA;
		case UUIDOID:
			return PGSEAL_COLUMN_TYPE_UUID;
		case INT2OID:
			return PGSEAL_COLUMN_TYPE_INT2;
		case FLOAT4OID:
			return PGSEAL_COLUMN_TYPE_FLOAT4;
		case FLOAT8OID:
			return PGSEAL_COLUMN_TYPE_FLOAT8;
		case BOOLOID:
			return PGSEAL_COLUMN_TYPE_BOOL;
		case TIMEOID:
			return PGSEAL_COLUMN_TYPE_TIME;
		case INTERVALOID:
			return PGSEAL_COLUMN_TYPE_INTERVAL;
		case JSONBOID:
			return PGSEAL_COLUMN_TYPE_JSONB;
		case JSONOID:
			return PGSEAL_COLUMN_TYPE_JSON;
		case INETOID:
			return PGSEAL_COLUMN_TYPE_INET;
		case CIDROID:
			return PGSEAL_COLUMN_TYPE_CIDR;
		case MACADDROID:
			return PGSEAL_COLUMN_TYPE_MACADDR;
		case TIMETZOID:
			return PGSEAL_COLUMN_TYPE_TIMETZ;
		case XMLOID:
			return PGSEAL_COLUMN_TYPE_XML;
		default:
			/*
			 * In authenticated modes only.  The OIDs of the server's own types do not change.  The sum is
			 * larger than each code above, so that no two types share a code.
			 */
			return OTHER_TYPE_CODES + (uint32) base;
	}
}

/* Completes the entry of a type, at its first use; `cache` is the memory of the entry. */
void
pgseal_base_complete(SealedType *type, MemoryContext cache)
{
	MemoryContext old = MemoryContextSwitchTo(cache);
	Oid			in,
				out,
				recv,
				send,
				coerce;
	bool		varlena;

	get_typlenbyval(type->base, &type->base_len, &type->base_byval);
	getTypeInputInfo(type->base, &in, &type->base_ioparam);
	getTypeOutputInfo(type->base, &out, &varlena);
	getTypeBinaryInputInfo(type->base, &recv, &type->base_ioparam);
	getTypeBinaryOutputInfo(type->base, &send, &varlena);
	fmgr_info_cxt(in, &type->base_in, cache);
	fmgr_info_cxt(out, &type->base_out, cache);
	fmgr_info_cxt(recv, &type->base_recv, cache);
	fmgr_info_cxt(send, &type->base_send, cache);
	if (type->base == NUMERICOID &&
		find_typmod_coercion_function(type->base, &coerce) == COERCION_PATH_FUNC)
		fmgr_info_cxt(coerce, &type->base_coerce, cache);
	type->name = format_type_be(type->oid);
	MemoryContextSwitchTo(old);
}
