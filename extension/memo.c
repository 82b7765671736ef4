/*-------------------------------------------------------------------------
 *
 * memo.c
 *		What the deterministic ciphers of a type gave last (see text.c for values
 *		that come as text).
 *
 * FF1 is ten AES blocks, each of which waits for the one before, and most
 * columns hold few values many times: dates, quantities, codes, keys that
 * repeat from row to row.  So a backend that seals or opens many values of a
 * type keeps the last results in a table with one place for each hash value.
 * It belongs to a type: a new reading of the catalog, and with it any change
 * of keys, ends it and starts without.  It holds plain values: see secret.c.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

/* Values of a type before it gets a table: a connection that touches a few rows needs none. */
#define FIRST_USES 256

#define NUMBER_BITS 14			/* 16,384 pairs, 256 kB */
#define STRING_BITS 11			/* 2,048 pairs, 196 kB */

#define HASH_FACTOR UINT64CONST(0x9E3779B97F4A7C15)

/* Uses of a memo that gets no table any more. */
#define ENDED PG_UINT32_MAX

/* A table of zeros if there is one now: not before it is worth it, nor without memory; everything works without. */
static void *
make_table(Memo *memo, Size len)
{
	if (memo->uses < FIRST_USES)
	{
		memo->uses++;
		return NULL;
	}
	if (memo->uses == ENDED)
		return NULL;
	memo->table.any = pgseal_secret_alloc(len);
	memo->len = len;
	if (memo->table.any == NULL)
		memo->uses = 0;			/* ask again, but not at each value */
	return memo->table.any;
}

/* The table, of so many bytes, all zero at first; NULL if there is none (yet). */
void *
pgseal_memo_table(Memo *memo, Size len)
{
	return likely(memo->table.any != NULL) ? memo->table.any : make_table(memo, len);
}

/* Forgets all, for good: what still holds the type, as it was, does without. */
void
pgseal_memo_end(Memo *memo)
{
	pgseal_secret_free(memo->table.any, memo->len);
	memo->table.any = NULL;
	memo->uses = ENDED;
}

/* The place of a number, NULL if there is no table (yet).  It is the number's if `from` is. */
MemoNumber *
pgseal_memo_number(Memo *memo, uint64 from)
{
	if (unlikely(memo->table.any == NULL))
	{
		if (make_table(memo, sizeof(MemoNumber) << NUMBER_BITS) == NULL)
			return NULL;
		/* Empty places are those of zero; that of zero is empty with a number that has another place. */
		memo->table.numbers[0].from = 1;
	}
	return &memo->table.numbers[(from * HASH_FACTOR) >> (64 - NUMBER_BITS)];
}

StaticAssertDecl(MEMO_PLAIN_BYTES + PGSEAL_COLUMN_DET_OVERHEAD_MAX <= MEMO_STRING_BYTES, "a sealed string fits");

/* The place of a string, NULL if there is no table (yet), or the string is longer than `max_len`. */
MemoString *
pgseal_memo_string(Memo *memo, const uint8 *from, size_t len, size_t max_len)
{
	uint64		words[MEMO_STRING_BYTES / 8];
	uint64		hash = len;

	if (len > max_len)
		return NULL;
	if (pgseal_memo_table(memo, sizeof(MemoString) << STRING_BITS) == NULL)
		return NULL;
	memset(words, 0, sizeof(words));
	memcpy(words, from, len);
	for (int i = 0; i * 8 < len; i++)
		hash = ((hash ^ words[i]) * HASH_FACTOR) ^ (hash >> 29);
	return &memo->table.strings[(hash * HASH_FACTOR) >> (64 - STRING_BITS)];
}

bool
pgseal_memo_has(const MemoString *memo, const uint8 *from, size_t len)
{
	return memo->from_len == len && (memo->from_len | memo->to_len) != 0 && memcmp(memo->from, from, len) == 0;
}

void
pgseal_memo_set(MemoString *memo, const uint8 *from, size_t len, const uint8 *to, size_t to_len)
{
	memo->from_len = len;
	memo->to_len = to_len;
	memcpy(memo->from, from, len);
	memcpy(memo->to, to, to_len);
}
