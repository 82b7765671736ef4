//! Storage that forgets.
