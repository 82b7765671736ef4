//! Storage that fails.
