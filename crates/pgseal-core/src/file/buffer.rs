//! Memory that the kernel and the ciphers copy to and from.

use crate::memory::{self, OutOfMemory};

/// The alignment of a buffer: a page of memory. A large piece of memory from the C library's
/// allocator starts 16 bytes behind a page boundary, so that each step of a copy crosses a cache
/// line: a `read` of 8192 bytes then takes a quarter longer.
const ALIGN: usize = 4096;

/// A buffer that only ever grows. Its contents are unspecified between two uses.
#[derive(Debug, Default)]
pub struct Buffer {
    memory: Vec<u8>,
    start: usize,
}

impl Buffer {
    /// An empty buffer, without memory.
    #[must_use]
    pub const fn new() -> Buffer {
        Buffer { memory: Vec::new(), start: 0 }
    }

    /// The first `len` bytes, for writing; an error leaves the buffer as it was.
    #[inline]
    pub fn room(&mut self, len: usize) -> Result<&mut [u8], OutOfMemory> {
        if self.memory.len() < self.start + len {
            self.grow(len)?;
        }
        Ok(&mut self.memory[self.start..self.start + len])
    }

    #[cold]
    fn grow(&mut self, len: usize) -> Result<(), OutOfMemory> {
        self.memory = memory::zeros(len + ALIGN - 1)?;
        self.start = self.memory.as_ptr().align_offset(ALIGN).min(ALIGN - 1);
        Ok(())
    }

    /// The first `len` bytes, as the last use left them; fewer if the buffer was never that large.
    #[must_use]
    pub fn bytes(&self, len: usize) -> &[u8] {
        let end = (self.start + len).min(self.memory.len());
        &self.memory[self.start..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_at_a_page_of_memory_and_keeps_what_it_has() {
        let mut buffer = Buffer::default();
        assert_eq!(buffer.bytes(10), []);
        for len in [1, 8192, 100, 20 * 8192, 300_000] {
            let room = buffer.room(len).unwrap();
            assert_eq!((room.len(), room.as_ptr() as usize % ALIGN), (len, 0));
            room.fill(len as u8);
            // A smaller use afterwards takes the same memory.
            buffer.room(1).unwrap()[0] = 7;
            assert_eq!(buffer.bytes(len)[1..], vec![len as u8; len - 1]);
        }
        assert_eq!(buffer.room(usize::MAX / 2), Err(OutOfMemory));
        assert_eq!(buffer.bytes(300_000)[1..], vec![300_000_u32 as u8; 299_999]);
    }
}
