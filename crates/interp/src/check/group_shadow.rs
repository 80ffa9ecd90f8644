//! Shadow memory of a launch: which group accessed an element of an argument before.
//!
//! Groups run one after another here, so the first reader and the first writer of an element are
//! enough: if the first is the current group, there was no other. It takes 16 bytes for each
//! element, only for arguments that are written, and only where they are accessed (untouched pages
//! are never allocated).

use super::access::Touch;

pub struct GroupShadow {
    writer: Vec<u32>,
    writer_site: Vec<u32>,
    reader: Vec<u32>,
    reader_site: Vec<u32>,
}

/// An earlier access of another group.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Earlier {
    /// The group's index, from 1.
    pub group: u32,
    pub site: usize,
    pub wrote: bool,
}

impl GroupShadow {
    pub fn new(elements: usize) -> Self {
        let zeros = || vec![0u32; elements];
        Self { writer: zeros(), writer_site: zeros(), reader: zeros(), reader_site: zeros() }
    }

    pub fn read(&mut self, element: usize, group: u32, site: usize) -> Option<Earlier> {
        if self.reader[element] == 0 {
            self.reader[element] = group;
            self.reader_site[element] = site as u32;
        }
        let writer = self.writer[element];
        (writer != 0 && writer != group).then(|| self.earlier_write(element))
    }

    /// `as_what` says how an op writes; `harmless` whether a plain write stores the same value as
    /// another group's plain write.
    pub fn write(
        &mut self,
        element: usize,
        group: u32,
        site: usize,
        as_what: impl Fn(usize) -> Touch,
        harmless: impl FnOnce() -> bool,
    ) -> Option<Earlier> {
        let (writer, reader) = (self.writer[element], self.reader[element]);
        let touch = as_what(site);
        let plain = |site: u32| as_what(site as usize) == Touch::Write && touch == Touch::Write;
        if writer == 0 {
            self.writer[element] = group;
            self.writer_site[element] = site as u32;
        } else if !touch.agrees(as_what(self.writer_site[element] as usize)) {
            if writer != group && !(plain(self.writer_site[element]) && harmless()) {
                return Some(self.earlier_write(element));
            }
            // Of a group's own writes the one that agrees with the fewest others is kept.
            if writer == group && !touch.agrees(touch) {
                self.writer_site[element] = site as u32;
            }
        }
        (reader != 0 && reader != group).then(|| Earlier {
            group: reader,
            site: self.reader_site[element] as usize,
            wrote: false,
        })
    }

    fn earlier_write(&self, element: usize) -> Earlier {
        Earlier {
            group: self.writer[element],
            site: self.writer_site[element] as usize,
            wrote: true,
        }
    }
}
