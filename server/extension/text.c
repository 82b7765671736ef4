/*-------------------------------------------------------------------------
 *
 * text.c
 *		From the text of a plain value to a sealed value.
 *
 * Loads repeat the same dates, quantities, codes and keys, and to parse a date or
 * a number takes as long as to seal it.  A backend that reads many values of a
 * format-preserving type therefore keeps the last texts with their sealed values:
 * a text that is found is neither parsed nor sealed.  The table belongs to a
 * type, is dropped with each change of keys, and holds plain values, like the
 * tables of memo.c.
 *
 * May use: value.c, form.c and what is below them.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include "catalog/pg_type.h"

#define TEXT_BITS 12			/* 4,096 pairs of texts, 256 kB */

#define HASH_FACTOR_1 UINT64CONST(0x9E3779B97F4A7C15)
#define HASH_FACTOR_2 UINT64CONST(0xC2B2AE3D27D4EB4F)

/* A text of 1 to 16 bytes as two words; together with the length they identify the text. */
typedef struct Words
{
	uint64		first;
	uint64		last;
	uint32		len;
} Words;

static bool
words_of(const char *text, Words *words)
{
	size_t		len = strlen(text);
	uint32		halves[2] = {0, 0};

	if (len == 0 || len > 2 * sizeof(uint64))
		return false;
	words->len = (uint32) len;
	if (len >= sizeof(uint64))
	{
		memcpy(&words->first, text, sizeof(uint64));
		memcpy(&words->last, text + len - sizeof(uint64), sizeof(uint64));
		return true;
	}
	if (len >= sizeof(uint32))
	{
		memcpy(&halves[0], text, sizeof(uint32));
		memcpy(&halves[1], text + len - sizeof(uint32), sizeof(uint32));
	}
	else
	{
		halves[0] = (uint8) text[0];
		halves[1] = (uint32) (uint8) text[len / 2] << 8 | (uint8) text[len - 1];
	}
	words->first = (uint64) halves[1] << 32 | halves[0];
	words->last = 0;
	return true;
}

/* The two entries where a text may be; NULL if there is no table (yet). */
static MemoText *
places_of(SealedType *type, const Words *words)
{
	MemoText   *table = pgseal_memo_table(&type->written, sizeof(MemoText) << (TEXT_BITS + 1));
	uint64		hash = words->first * HASH_FACTOR_1 ^ (words->last + words->len) * HASH_FACTOR_2;

	if (unlikely(table == NULL))
		return NULL;
	return table + 2 * ((hash ^ hash >> 29) * HASH_FACTOR_1 >> (64 - TEXT_BITS));
}

static bool
holds(const MemoText *place, const Words *words, int32 typmod)
{
	return place->first == words->first && place->last == words->last && place->len == words->len &&
		place->typmod == typmod;
}

static bool
is_iso_date(const char *text, uint32 len)
{
	for (uint32 i = 0; i < len; i++)
		if (i == 4 || i == 7 ? text[i] != '-' : text[i] < '0' || text[i] > '9')
			return false;
	return len == 10;
}

/*
 * Whether a text of the type always has the same value: most dates, and timestamps, depend on
 * settings.  The input functions of these types do not read the catalog either, so that the table
 * cannot be dropped while they run.
 */
static bool
always_means_the_same(SealedType *type, const char *text, uint32 len)
{
	switch (type->base)
	{
		case INT4OID:
		case INT8OID:
		case NUMERICOID:
			return true;
		case DATEOID:
			return is_iso_date(text, len);
		default:
			return false;
	}
}

static Datum
datum_of(SealedType *type, uint64 sealed)
{
	return type->layout == LAYOUT_INT4 ? Int32GetDatum((int32) sealed) : Int64GetDatum((int64) sealed);
}

/*
 * How often a call site found a text in the table lately, in memory that its fn_extra points to.  A
 * call site that finds few of its texts (a column of keys or prices, perhaps) leaves the table
 * alone for a while: each lookup waits for memory, and each result that is stored replaces another
 * one.  Each literal of a statement is a call site: it costs an allocation of 8 bytes, about 25 ns.
 * Compared with counts in the bits of fn_extra itself, an INSERT of 1000 literals takes 1.03 of the
 * CPU time and a COPY 1.00 to 1.01; the noise of the measurement was 0.1.
 */
typedef struct Lookups
{
	uint16		asked;
	uint16		found;
	uint32		to_skip;
} Lookups;

#define ASKED 4096				/* lookups before the call site is judged */
#define FOUND_MIN (ASKED / 3)	/* with fewer texts found, it skips the table */
#define SKIPPED 65536			/* for so many texts */

/*
 * Made with the first lookup of the call site: before the type has a table, a call site costs no
 * memory.
 */
static Lookups *
lookups_of(FmgrInfo *flinfo)
{
	if (unlikely(flinfo->fn_extra == NULL))
		flinfo->fn_extra = MemoryContextAllocZero(flinfo->fn_mcxt, sizeof(Lookups));
	return flinfo->fn_extra;
}

static void
count_lookup(Lookups *lookups, bool found)
{
	lookups->found += found;
	if (++lookups->asked < ASKED)
		return;
	lookups->to_skip = lookups->found < FOUND_MIN ? SKIPPED : 0;
	lookups->asked = lookups->found = 0;
}

static Datum
seal_once(SealedType *type, char *text, int32 typmod)
{
	uint64		packed;
	uint32		display_scale;

	if (type->layout == LAYOUT_NUMERIC && pgseal_numeric_pack_text(text, typmod, &packed, &display_scale))
		return pgseal_seal_packed_once(type, packed, display_scale);
	pgseal_form_refuse_text(type, text);
	return pgseal_seal_once(type, InputFunctionCall(&type->base_in, text, type->base_ioparam, typmod));
}

/*
 * The sealed value of a text, by the input function of the base type; flinfo is that of the call
 * site.
 */
Datum
pgseal_seal_text(SealedType *type, char *text, int32 typmod, FmgrInfo *flinfo)
{
	Lookups    *lookups = flinfo->fn_extra;
	MemoText   *places;
	Words		words;
	Datum		sealed;

	if (type->base == TEXTOID)
	{
		/* What textin() would only copy. */
		pgseal_form_refuse_text(type, text);
		return pgseal_seal_characters(type, text);
	}
	if (type->mode != SEAL_FORMAT || !words_of(text, &words) || !always_means_the_same(type, text, words.len))
	{
		pgseal_form_refuse_text(type, text);
		return pgseal_seal(type, InputFunctionCall(&type->base_in, text, type->base_ioparam, typmod));
	}
	pgseal_ready_to_seal(type);
	if (lookups != NULL && lookups->to_skip > 0)
	{
		lookups->to_skip--;
		return seal_once(type, text, typmod);
	}
	places = places_of(type, &words);
	if (places == NULL)
		return seal_once(type, text, typmod);
	lookups = lookups_of(flinfo);
	for (int i = 0; i < 2; i++)
		if (holds(&places[i], &words, typmod))
		{
			count_lookup(lookups, true);
			pgseal_counts.sealed++;
			return datum_of(type, places[i].sealed);
		}
	count_lookup(lookups, false);
	sealed = seal_once(type, text, typmod);
	places[1] = places[0];
	places[0].first = words.first;
	places[0].last = words.last;
	places[0].len = words.len;
	places[0].typmod = typmod;
	places[0].sealed = type->layout == LAYOUT_INT4 ? (uint32) DatumGetInt32(sealed) : (uint64) DatumGetInt64(sealed);
	return sealed;
}
