//! The third floor: data keys, the memory that holds them, and the keyrings of new directories.
//!
//! The helper, the program `pgseal`, unlocks a keyring and hands the keys over; it also makes the
//! keyring of a directory that a program of PostgreSQL is about to create.
//! May use: `os` and `place`.

pub mod copies;
pub mod helper;
pub mod load;
pub mod make;
pub mod renewal;
pub mod settings;
pub mod upgrade;
pub mod vault;
