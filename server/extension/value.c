/*-------------------------------------------------------------------------
 *
 * value.c
 *		Seals and opens one value of any sealed type.
 *
 * May use: the ciphers, memo.c, packing.c, catalog.c and what is below them.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include "access/tupmacs.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/numeric.h"

/* The display scale is stored after a deterministic numeric: equality must ignore it. */
#define SCALE_BYTES 2
#define MAX_DISPLAY_SCALE 16383	/* of a numeric */
#define MAX_ROUND_SCALE 2000	/* numeric_round() takes no more */

static bool
has_scale(SealedType *type)
{
	return type->mode == SEAL_DETERMINISTIC && type->base == NUMERICOID;
}

PGSEAL_NORETURN static pg_noinline void
refuse_while_rotating(SealedType *type, SealedDomain *domain)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("type %s cannot be used while the key of key domain %s rotates",
					type->name, NameStr(domain->name)),
			 errhint("See pgseal.rotation_progress; CALL pgseal.rotate('%s') resumes it.",
					 NameStr(domain->name))));
}

static inline void
check_rotation(SealedType *type, SealedDomain *domain)
{
	if (unlikely(domain->rotating_to != 0))
		refuse_while_rotating(type, domain);
}

/* ---- format-preserving ---- */

/* FF1 over the number of bits that the layout has. */
static int
ff1(SealedType *type, pgseal_column_key *key, bool seal, uint64 from, uint64 *to)
{
	uint32		to4 = 0;
	int			code;

	switch (type->layout)
	{
		case LAYOUT_INT4:
			code = (seal ? pgseal_column_ff1_encrypt32 : pgseal_column_ff1_decrypt32) (key, type->code, (uint32) from, &to4);
			*to = to4;
			return code;
		case LAYOUT_INT8:
			return (seal ? pgseal_column_ff1_encrypt64 : pgseal_column_ff1_decrypt64) (key, type->code, from, to);
		default:
			return (seal ? pgseal_column_ff1_encrypt60 : pgseal_column_ff1_decrypt60) (key, type->code, from, to);
	}
}

/* Computes a value, and stores it in its entry of the memo, if there is one. */
static pg_noinline uint64
ff1_into_memo(SealedType *type, pgseal_column_key *key, bool seal, MemoNumber *memo, uint64 from)
{
	uint64		to;
	int			code = ff1(type, key, seal, from, &to);

	if (unlikely(code != PGSEAL_COLUMN_OK))
		pgseal_fail(code, type, seal ? "seal" : "open");
	if (memo != NULL)
	{
		memo->from = from;
		memo->to = to;
	}
	return to;
}

/*
 * FF1, from the memo if it has the result.  A memo belongs to the key in use; NULL: no memo.
 */
static inline uint64
ff1_or_memo(SealedType *type, pgseal_column_key *key, bool seal, Memo *results, uint64 from)
{
	MemoNumber *memo = results != NULL ? pgseal_memo_number(results, from) : NULL;

	if (memo != NULL && memo->from == from)
		return memo->to;
	return ff1_into_memo(type, key, seal, memo, from);
}

static pg_noinline uint32
int4_into_memo(SealedType *type, pgseal_column_key *key, bool seal, MemoInt4 *memo, uint32 from)
{
	uint32		to = (uint32) ff1_into_memo(type, key, seal, NULL, from);

	if (memo != NULL)
	{
		memo->from = from;
		memo->to = to;
	}
	return to;
}

/* The same for a number of 32 bits. */
static inline uint32
int4_or_memo(SealedType *type, pgseal_column_key *key, bool seal, Memo *results, uint32 from)
{
	MemoInt4   *memo = results != NULL ? pgseal_memo_int4(results, from) : NULL;

	if (memo != NULL && memo->from == from)
		return memo->to;
	return int4_into_memo(type, key, seal, memo, from);
}

static Datum
numeric_seal(SealedType *type, pgseal_column_key *key, Memo *memo, uint64 packed, uint32 display_scale)
{
	return Int64GetDatum((int64) (ff1_or_memo(type, key, true, memo, packed) << 4 | display_scale));
}

static Datum
format_seal(SealedType *type, pgseal_column_key *key, Memo *memo, Datum plain)
{
	uint64		packed;
	uint32		scale;

	switch (type->layout)
	{
		case LAYOUT_INT4:
			return Int32GetDatum((int32) int4_or_memo(type, key, true, memo, (uint32) DatumGetInt32(plain)));
		case LAYOUT_INT8:
			return Int64GetDatum((int64) ff1_or_memo(type, key, true, memo, (uint64) DatumGetInt64(plain)));
		default:
			if (!pgseal_numeric_pack(plain, &packed, &scale))
				ereport(ERROR,
						(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
						 errmsg("value does not fit type %s", type->name),
						 errdetail("It holds up to 16 significant digits, and up to 15 digits after the decimal point."),
						 errhint("Use sealed_numeric_wide, or round the value.")));
			return numeric_seal(type, key, memo, packed, scale);
	}
}

PGSEAL_NORETURN static pg_noinline void
refuse_opened(SealedType *type)
{
	pgseal_fail(PGSEAL_COLUMN_NOT_AUTHENTIC, type, "open");
}

/* A numeric that the memo does not have; it is stored in its entry, if there is one. */
static pg_noinline Datum
numeric_open(SealedType *type, pgseal_column_key *key, MemoNumeric *memo, uint64 sealed)
{
	uint64		packed = ff1_into_memo(type, key, false, NULL, sealed >> 4);
	Datum		result;

	if (unlikely(!pgseal_numeric_unpack(packed, (uint32) (sealed & 15), &result)))
		refuse_opened(type);
	if (memo != NULL && VARSIZE(DatumGetPointer(result)) <= MEMO_NUMERIC_BYTES)
	{
		memo->from = sealed;
		memset(memo->to, 0, MEMO_NUMERIC_BYTES);
		memcpy(memo->to, DatumGetPointer(result), VARSIZE(DatumGetPointer(result)));
	}
	return result;
}

/* A sum opens each value of its column, and an expression the same value again. */
static inline Datum
numeric_or_memo(SealedType *type, pgseal_column_key *key, Memo *results, uint64 sealed)
{
	MemoNumeric *memo = results != NULL ? pgseal_memo_numeric(results, sealed) : NULL;
	void	   *result;

	if (memo == NULL || memo->from != sealed)
		return numeric_open(type, key, memo, sealed);
	result = palloc(MEMO_NUMERIC_BYTES);
	memcpy(result, memo->to, MEMO_NUMERIC_BYTES);
	return PointerGetDatum(result);
}

static inline Datum
format_open(SealedType *type, pgseal_column_key *key, Memo *memo, Datum sealed)
{
	uint64		plain;
	bool		valid = true;

	switch (type->layout)
	{
		case LAYOUT_INT4:
			plain = int4_or_memo(type, key, false, memo, (uint32) DatumGetInt32(sealed));
			if (type->base == DATEOID)
				valid = DATE_NOT_FINITE((DateADT) plain) || IS_VALID_DATE((DateADT) plain);
			if (unlikely(!valid))	/* the result is no value of the base type */
				refuse_opened(type);
			return Int32GetDatum((int32) plain);
		case LAYOUT_INT8:
			plain = ff1_or_memo(type, key, false, memo, (uint64) DatumGetInt64(sealed));
			if (type->base != INT8OID)
				valid = TIMESTAMP_NOT_FINITE((Timestamp) plain) || IS_VALID_TIMESTAMP((Timestamp) plain);
			if (unlikely(!valid))
				refuse_opened(type);
			return Int64GetDatum((int64) plain);
		default:
			return numeric_or_memo(type, key, memo, (uint64) DatumGetInt64(sealed));
	}
}

/* ---- authenticated ---- */

/*
 * AES-SIV, from the memo if it has the result.  To seal, a memo is used with the key in use only.
 * To open, with any version of the key: the sealed value names its version, and the same bytes have
 * the same result.
 */
static int
det_or_memo(SealedType *type, pgseal_column_key *key, bool seal, const uint8 *from, size_t len, uint8 *to, size_t cap,
			size_t *to_len)
{
	MemoString *memo = NULL;
	int			code;

	if (!seal)
		memo = pgseal_memo_string(&type->opened, from, len, MEMO_STRING_BYTES);
	else if (likely(key == type->domain->lookup_key))
		memo = pgseal_memo_string(&type->sealed, from, len, MEMO_PLAIN_BYTES);
	if (memo != NULL && pgseal_memo_has(memo, from, len) && memo->to_len <= cap)
	{
		memcpy(to, memo->to, memo->to_len);
		*to_len = memo->to_len;
		return PGSEAL_COLUMN_OK;
	}
	code = (seal ? pgseal_column_det_seal : pgseal_column_det_open) (key, type->code, from, len, to, cap, to_len);
	if (memo != NULL && code == PGSEAL_COLUMN_OK)
		pgseal_memo_set(memo, from, len, to, *to_len);
	return code;
}

/* Seals bytes of an authenticated type; `scale` follows those of a deterministic numeric. */
static Datum
seal_bytes(SealedType *type, pgseal_column_key *key, const uint8 *bytes, size_t len, uint16 scale)
{
	size_t		sealed_len = type->mode == SEAL_RANDOM ? pgseal_column_rnd_sealed_len(key, len) :
		pgseal_column_det_sealed_len(key, len);
	struct varlena *result = palloc(VARHDRSZ + sealed_len + SCALE_BYTES);
	uint8	   *to = (uint8 *) VARDATA(result);
	size_t		written;
	int			code;

	if (type->mode == SEAL_RANDOM)
		code = pgseal_column_rnd_seal(key, type->code, bytes, len, to, sealed_len, &written);
	else
		code = det_or_memo(type, key, true, bytes, len, to, sealed_len, &written);
	if (unlikely(code != PGSEAL_COLUMN_OK))
		pgseal_fail(code, type, "seal");
	if (has_scale(type))
	{
		memcpy(to + written, &scale, SCALE_BYTES);
		written += SCALE_BYTES;
	}
	SET_VARSIZE(result, VARHDRSZ + written);
	return PointerGetDatum(result);
}

static Datum
bytes_seal(SealedType *type, pgseal_column_key *key, Datum plain)
{
	Datum		given = plain;
	Datum		result;
	struct varlena *value;
	union
	{
		Datum		datum;
		uint8		bytes[sizeof(Datum)];
	}			byval;
	uint16		scale = 0;

	if (type->base_len != -1)
	{
		if (type->base_byval)
			store_att_byval(&byval, plain, type->base_len);
		return seal_bytes(type, key, type->base_byval ? byval.bytes : (const uint8 *) DatumGetPointer(plain),
						  type->base_len, 0);
	}
	if (has_scale(type) && !numeric_is_nan(DatumGetNumeric(plain)) && !numeric_is_inf(DatumGetNumeric(plain)))
	{
		/* Equal values must have equal bytes: remove trailing zeros, and keep the scale separately. */
		scale = DatumGetInt32(DirectFunctionCall1(numeric_scale, plain));
		plain = DirectFunctionCall1(numeric_trim_scale, plain);
	}
	value = PG_DETOAST_DATUM_PACKED(plain);
	result = seal_bytes(type, key, (const uint8 *) VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value), scale);
	if (PointerGetDatum(value) != given)
		pfree(value);
	return result;
}

/*
 * Restores the trailing zeros of a deterministic numeric.  The scale is not authenticated, so it
 * may only determine how many zeros are displayed: a scale that would cut digits off is refused.
 */
static Datum
with_scale(SealedType *type, Datum plain, uint16 scale)
{
	bool		special = numeric_is_nan(DatumGetNumeric(plain)) || numeric_is_inf(DatumGetNumeric(plain));
	int32		digits = special ? 0 : DatumGetInt32(DirectFunctionCall1(numeric_min_scale, plain));
	char	   *zero;

	if (scale < digits || scale > (special ? 0 : MAX_DISPLAY_SCALE))
		pgseal_fail(PGSEAL_COLUMN_NOT_AUTHENTIC, type, "open");
	if (scale == digits)
		return plain;
	if (scale <= MAX_ROUND_SCALE)
		return DirectFunctionCall2(numeric_round, plain, Int32GetDatum(scale));
	/*
	 * numeric_round() does not go to this scale: add a zero that has it, since a sum has the larger
	 * scale.
	 */
	zero = palloc(scale + 3);
	memset(zero, '0', scale + 2);
	zero[1] = '.';
	zero[scale + 2] = '\0';
	return DirectFunctionCall2(numeric_add, plain,
							   DirectFunctionCall3(numeric_in, CStringGetDatum(zero), ObjectIdGetDatum(InvalidOid),
												   Int32GetDatum(-1)));
}

static Datum
bytes_open(SealedType *type, SealedDomain *domain, Datum sealed)
{
	struct varlena *value = PG_DETOAST_DATUM_PACKED(sealed);
	const uint8 *bytes = (const uint8 *) VARDATA_ANY(value);
	size_t		len = VARSIZE_ANY_EXHDR(value);
	struct varlena *result;
	pgseal_column_key *key = type->mode == SEAL_RANDOM ? domain->random_key : domain->lookup_key;
	uint32		version;
	size_t		plain_len;
	uint16		scale = 0;
	uint8	   *to;
	int			code;
	Datum		plain;

	if (has_scale(type))
	{
		if (len < SCALE_BYTES)
			pgseal_fail(PGSEAL_COLUMN_NOT_SEALED, type, "open");
		len -= SCALE_BYTES;
		memcpy(&scale, bytes + len, SCALE_BYTES);
	}
	result = palloc(VARHDRSZ + len);
	to = (uint8 *) VARDATA(result);
	for (;;)
	{
		if (type->mode == SEAL_RANDOM)
			code = pgseal_column_rnd_open(key, type->code, bytes, len, to, len, &plain_len);
		else
			code = det_or_memo(type, key, false, bytes, len, to, len, &plain_len);
		if (likely(code != PGSEAL_COLUMN_OTHER_VERSION))
			break;
		if (pgseal_column_inspect(bytes, len, NULL, &version, NULL) != PGSEAL_COLUMN_OK ||
			version == pgseal_column_key_version(key) ||
			(key = pgseal_key_version(domain, version)) == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("cannot open a value of type %s: key domain %s has no such version of its key",
							type->name, NameStr(type->domain_name)),
					 errhint("The value was damaged, or sealed in another database: restore its rows of _pgseal.key.")));
	}
	if (unlikely(code != PGSEAL_COLUMN_OK))
		pgseal_fail(code, type, "open");
	if (value != (struct varlena *) DatumGetPointer(sealed))
		pfree(value);
	if (type->base_len == -1)
	{
		SET_VARSIZE(result, VARHDRSZ + plain_len);
		plain = PointerGetDatum(result);
		return has_scale(type) ? with_scale(type, plain, scale) : plain;
	}
	if (plain_len != (size_t) type->base_len)
		pgseal_fail(PGSEAL_COLUMN_NOT_AUTHENTIC, type, "open");
	if (type->base_byval)
	{
		union
		{
			Datum		datum;
			uint8		bytes[sizeof(Datum)];
		}			byval;

		memcpy(byval.bytes, to, plain_len);
		return fetch_att(&byval, true, type->base_len);
	}
	/* By reference and of fixed length: the value needs aligned memory of its own. */
	to = palloc(plain_len);
	memcpy(to, VARDATA(result), plain_len);
	pfree(result);
	return PointerGetDatum(to);
}

/* ---- both ---- */

/* The key for new values.  While the key of a deterministic type rotates, that is an error. */
static inline pgseal_column_key *
key_to_seal(SealedType *type)
{
	SealedDomain *domain = pgseal_domain_of(type);

	pgseal_counts.sealed++;
	if (type->mode == SEAL_RANDOM)
		return domain->random_key;
	check_rotation(type, domain);
	return domain->lookup_key;
}

/* Seals a value of the base type. */
Datum
pgseal_seal(SealedType *type, Datum plain)
{
	pgseal_column_key *key = key_to_seal(type);

	if (type->mode == SEAL_FORMAT)
		return format_seal(type, key, &type->sealed, plain);
	return bytes_seal(type, key, plain);
}

/* Seals a value of an authenticated type of text from its characters. */
Datum
pgseal_seal_characters(SealedType *type, const char *text)
{
	return seal_bytes(type, key_to_seal(type), (const uint8 *) text, strlen(text), 0);
}

/* Seals a numeric that pgseal_numeric_pack_text() has packed. */
Datum
pgseal_seal_packed(SealedType *type, uint64 packed, uint32 display_scale)
{
	return numeric_seal(type, key_to_seal(type), &type->sealed, packed, display_scale);
}

/* Opens a sealed value.  The caller has checked the right to decrypt. */
Datum
pgseal_open(SealedType *type, Datum sealed)
{
	SealedDomain *domain = pgseal_domain_of(type);

	pgseal_counts.opened++;
	if (type->mode != SEAL_FORMAT)
		return bytes_open(type, domain, sealed);
	check_rotation(type, domain);
	return format_open(type, domain->lookup_key, &type->opened, sealed);
}

/* Seals a sealed value with another version of the key, for the rotation. */
Datum
pgseal_recrypt(SealedType *type, Datum sealed, uint32 from, uint32 to)
{
	SealedDomain *domain = pgseal_domain_of(type);
	pgseal_column_key *old = pgseal_key_version(domain, from);
	pgseal_column_key *new = pgseal_key_version(domain, to);

	if (old == NULL || new == NULL)
		ereport(ERROR,
				(errmsg("key domain %s has no key of version %u or %u", NameStr(domain->name), from, to)));
	if (type->mode == SEAL_FORMAT)
		return format_seal(type, new, NULL, format_open(type, old, NULL, sealed));
	return bytes_seal(type, new, bytes_open(type, domain, sealed));
}

/* Whether the sealed type can hold a value of the base type. */
bool
pgseal_fits(SealedType *type, Datum plain)
{
	uint64		packed;
	uint32		scale;

	return type->layout != LAYOUT_NUMERIC || pgseal_numeric_pack(plain, &packed, &scale);
}
