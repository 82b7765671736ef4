//! Format-preserving encryption: FF1 of SP 800-38G.

mod general;
mod native;

pub use general::Ff1;
pub use native::{Ff1Native, TWEAK_BYTES};
