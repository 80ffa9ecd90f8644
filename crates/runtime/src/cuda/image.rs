//! The length of a code image. The driver gets only its address and reads as far as its header
//! says, so a truncated image must be found here.

use super::error::CudaError;
use super::jit::refused;
use std::borrow::Cow;
use std::ffi::CString;

const ELF: &[u8] = b"\x7fELF";
const FAT: &[u8] = &[0x50, 0xed, 0x55, 0xba];

/// A cubin or a fat binary that is whole, or text with a zero at its end.
pub(crate) fn whole(image: &[u8]) -> Result<Cow<'_, [u8]>, CudaError> {
    let is_binary = image.starts_with(ELF) || image.starts_with(FAT);
    if is_binary {
        let end = if image.starts_with(ELF) { elf_end(image) } else { fat_end(image) };
        return match end {
            Some(end) if end <= image.len() as u64 => Ok(Cow::Borrowed(image)),
            _ => Err(CudaError::refused(refused("the code is cut short"))),
        };
    }
    let text = image.strip_suffix(b"\0").unwrap_or(image);
    let text = CString::new(text)
        .map_err(|_| CudaError::refused(refused("the code is neither a cubin nor PTX")))?;
    Ok(Cow::Owned(text.into_bytes_with_nul()))
}

fn number<const N: usize>(image: &[u8], at: u64) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let bytes = image.get(at..at.checked_add(N)?)?;
    let mut word = [0; 8];
    word[..N].copy_from_slice(bytes);
    Some(u64::from_le_bytes(word))
}

/// Where a 64-bit ELF file ends: behind its tables and its sections.
fn elf_end(image: &[u8]) -> Option<u64> {
    /// A section that takes no room in the file.
    const NOBITS: u64 = 8;
    let half = |at| number::<2>(image, at);
    let long = |at| number::<8>(image, at);
    let table = |start: u64, size: u64, count: u64| start.checked_add(size * count);
    let (sections, size, count) = (long(0x28)?, half(0x3a)?, half(0x3c)?);
    let mut end = table(sections, size, count)?.max(table(long(0x20)?, half(0x36)?, half(0x38)?)?);
    for n in 0..count {
        let header = sections.checked_add(n * size)?;
        if number::<4>(image, header.checked_add(4)?)? != NOBITS {
            let (offset, bytes) =
                (long(header.checked_add(0x18)?)?, long(header.checked_add(0x20)?)?);
            end = end.max(offset.checked_add(bytes)?);
        }
    }
    Some(end)
}

/// A fat binary's head tells its own length and that of the rest.
fn fat_end(image: &[u8]) -> Option<u64> {
    number::<2>(image, 6)?.checked_add(number::<8>(image, 8)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with one section of ten bytes at its end.
    fn elf() -> Vec<u8> {
        let mut file = vec![0; 64 + 64 + 10];
        file[..4].copy_from_slice(ELF);
        file[0x28] = 64;
        file[0x3a] = 64;
        file[0x3c] = 1;
        file[64 + 4] = 1;
        file[64 + 0x18] = 128;
        file[64 + 0x20] = 10;
        file
    }

    #[test]
    fn text_ends_with_a_zero() {
        assert_eq!(&*whole(b".version").unwrap(), b".version\0");
        assert_eq!(&*whole(b".version\0").unwrap(), b".version\0");
        assert!(whole(b".ver\0sion").is_err());
    }

    #[test]
    fn binaries_that_are_cut_short_are_refused() {
        let file = elf();
        assert!(matches!(whole(&file), Ok(Cow::Borrowed(_))));
        for cut in 4..file.len() {
            assert!(whole(&file[..cut]).is_err(), "cut to {cut}");
        }
        let mut wild = file;
        wild[0x28..0x30].fill(0xff);
        assert!(whole(&wild).is_err());
        let mut fat = [FAT, &[1, 0, 16, 0, 4, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9]].concat();
        assert!(whole(&fat).is_ok());
        fat.pop();
        assert!(whole(&fat).is_err());
    }
}
