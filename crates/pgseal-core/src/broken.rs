//! Orders of writes that a test breaks on purpose, to show that simulated power cuts find it
//! (`tests/pgseal-scenarios/scenarios/power.rs`).
//!
//! Only a build with `--cfg pgseal_broken` can break one, and only `make test-power-broken` builds
//! with it, into a directory of its own. In every other build [`is`] is `false` for the compiler,
//! and nothing of this is left.

/// An order that can be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The tag of a page is written before the page.
    TagBeforePage,
    /// The flush record in a WAL segment has a position that is not synced yet.
    PositionBeforeSync,
    /// The digests of `pg_control` are not synced before `pg_control` is written.
    ControlUnsynced,
    /// `pg_control` says "shut down" before the manifest is written.
    ManifestBehindControl,
    /// A file of `pgseal/` gets its name before its content is synced.
    NewFileUnsynced,
    /// A file that is written anew for its final name is written anew after the rename.
    PlaceAfterRename,
    /// A converted file replaces the old one before it is synced.
    ConvertedUnsynced,
    /// The header is not flushed before a range behind it.
    HeaderBehindRange,
}

/// Whether this build breaks this order: always `false`.
#[cfg(not(pgseal_broken))]
#[inline(always)]
#[must_use]
pub const fn is(_order: Order) -> bool {
    false
}

/// Whether the variable `PGSEAL_BROKEN` names this order.
#[cfg(pgseal_broken)]
#[must_use]
pub fn is(order: Order) -> bool {
    static CHOSEN: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| std::env::var("PGSEAL_BROKEN").unwrap_or_default());
    *chosen == format!("{order:?}")
}
