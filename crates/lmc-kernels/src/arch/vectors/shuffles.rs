//! Byte shuffles that spread words to the lanes that are due for one, and that gather words from lanes.

/// By the mask of eight lanes: the place of each lane's word among the next eight, or an index that gives 0.
pub(in crate::arch) static SPREAD: [[u8; 16]; 256] = {
    let mut t = [[0x80; 16]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut lane, mut next) = (0, 0);
        while lane < 8 {
            if (mask >> lane) & 1 == 1 {
                t[mask][2 * lane] = 2 * next;
                t[mask][2 * lane + 1] = 2 * next + 1;
                next += 1;
            }
            lane += 1;
        }
        mask += 1;
    }
    t
};

/// By the mask of eight lanes: the words of the masked lanes, in order, at the end of eight.
pub(in crate::arch) static GATHER: [[u8; 16]; 256] = {
    let mut t = [[0x80; 16]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut lane, mut next) = (8, 8);
        while lane > 0 {
            lane -= 1;
            if (mask >> lane) & 1 == 1 {
                next -= 1;
                t[mask][2 * next] = 2 * lane as u8;
                t[mask][2 * next + 1] = 2 * lane as u8 + 1;
            }
        }
        mask += 1;
    }
    t
};
