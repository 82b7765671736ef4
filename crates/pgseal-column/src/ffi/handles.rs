//! Handles: heap objects that C holds by pointer.

use crate::error::ColumnError;

/// The object that a handle points to.
pub(super) unsafe fn borrow<'a, T>(handle: *const T) -> Result<&'a T, ColumnError> {
    // SAFETY: null, or a handle that C got from `give` and has not freed; never changed after that.
    unsafe { handle.as_ref() }.ok_or(ColumnError::NullPointer)
}

/// Moves an object to the heap and gives C the pointer to it.
pub(super) unsafe fn give<T>(out: *mut *mut T, object: T) -> Result<(), ColumnError> {
    if out.is_null() {
        return Err(ColumnError::NullPointer);
    }
    // SAFETY: not null, and the caller says that a pointer may be written there.
    unsafe { out.write(Box::into_raw(Box::new(object))) };
    Ok(())
}

/// Takes an object back from C and drops it.
pub(super) unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: C got it from `give` and does not use it again.
        drop(unsafe { Box::from_raw(handle) });
    }
}
