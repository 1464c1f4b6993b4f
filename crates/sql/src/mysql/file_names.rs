//! Names of databases and tables as MySQL and MariaDB write them in names of files, and in MyRocks' dictionary.
//!
//! Letters and digits of ASCII and `_` stand for themselves. Behind `@` there are two characters for a letter of [`LETTERS`],
//! or else the four digits of the character's number.

/// A name as it is written in names of files.
pub fn encode(name: &str) -> String {
    let encode = |character: char| match (character, letter(character)) {
        ('_' | '0'..='9' | 'a'..='z' | 'A'..='Z', _) => character.to_string(),
        (_, Some(code)) => format!("@{code}"),
        (other, None) => format!("@{:04x}", u32::from(other)),
    };
    name.chars().map(encode).collect()
}

/// The name behind its form in names of files.
pub fn decode(file: &str) -> String {
    let (mut name, mut rest) = (String::new(), file);
    while let Some((before, behind)) = rest.split_once('@') {
        let letter = || Some((of_code(behind.get(..CODE_BYTES)?)?, CODE_BYTES));
        let number = || {
            let number = u32::from_str_radix(behind.get(..DIGITS)?, 16).ok()?;
            Some((char::from_u32(number)?, DIGITS))
        };
        let (character, bytes) = letter().or_else(number).unwrap_or(('@', 0));
        name.push_str(before);
        name.push(character);
        rest = &behind[bytes..];
    }
    name + rest
}

const CODE_BYTES: usize = 2;
const DIGITS: usize = 4;

/// The code of a letter.
fn letter(character: char) -> Option<&'static str> {
    let number = u32::from(character);
    let before = LETTERS.partition_point(|(first, _)| *first <= number);
    let (first, codes) = LETTERS.get(before.checked_sub(1)?)?;
    let at = (number - first) as usize * CODE_BYTES;
    codes.get(at..at + CODE_BYTES)
}

/// The letter of a code.
fn of_code(code: &str) -> Option<char> {
    LETTERS.iter().find_map(|(first, codes)| {
        let mut codes = codes.as_bytes().chunks(CODE_BYTES);
        let place = codes.position(|of| of == code.as_bytes())?;
        char::from_u32(first + place as u32)
    })
}

/// Codes of letters that follow each other, behind the number of the first.
#[rustfmt::skip]
const LETTERS: [(u32, &str); 50] = [
    (0x00c0, "0G0H0I0J0K0L0M0N0O0P0Q0R0S0T0U0V0W0X0Y0Z1G1H1I"),
    (0x00d8, "1K1L1M1N1O1P1Q1j0g0h0i0j0k0l0m0n0o0p0q0r0s0t0u0v0w0x0y0z1g1h1i"),
    (0x00f8, "\
        1k1l1m1n1o1p1q1r1S1s1T1t1U1u1V1v1W1w1X1x1Y1y1Z1z2G2g2H2h2I2i2J2j2K2k2L2l2M2m2N2n2O2o2P2p2Q2q2R2r\
        2S2s2T2t2U2u2V2v"),
    (0x0131, "\
        2w2X2x2Y2y2Z2z3g3H3h3I3i3J3j3K3k3L3l3M3m3N3n3O3o3p3Q3q3R3r3S3s3T3t3U3u3V3v3W3w3X3x3Y3y3Z3z4G4g4H\
        4h4I4i4J4j4K4k4L4l4M4m4N4n4O4o4P4p4Q4q4R4r4S4s1R4T4t4U4u4V4v4wgaQfHahaIaiaRfJajaTfUfKakalaZbWfYf\
        MamaJgMgnaSgRgOaoapaqaYgHhraKhSasaTataUauaVhVavaYhwaxaYayaJiZazaLiMiGbgbHbhbTiIbibjbkbNbnbmb"),
    (0x01c4, "Ob"),
    (0x01c6, "obPb"),
    (0x01c9, "pbQb"),
    (0x01cc, "qbRbrbSbsbTbtbUbubVbvbWbwbXbxbYbybzbGcgcHchcIcicJcjcKckcLclcMcmcNcncOcocpcQc"),
    (0x01f3, "qcRcrcNa"),
    (0x01f8, "\
        ScscTctcUcucVcvcWcwcXcxcYcycZczcGdgdHdhdIdidJdjdKdkdLdldMdmdNdndOdodPdpdQdqdRdrdRasdTdtdUdudVdvd\
        WdwdXdxdYdydZdzdGegeHeheiejekelemeneOePepePaQereseVi"),
    (0x0250, "\
        nfofpfqfrfsftfufvfwfxfyfzfgghgigjgkglgmgngogpgqgrgsgtgugvgwgxgygzgghhhihjhkhlhmhnhohphqhrhshthuh\
        vhwhxhyhzhgihiiijikiliminioipiqirisitiuiviwixiyizigjhjijjjkjljmjnjojpjqjrjsjtjujvjwjxjyjzjgkhkik"),
    (0x0386, "6G"),
    (0x0388, "6H6I6J"),
    (0x038c, "7S"),
    (0x038e, "7T7U5y6L7W6N6O6P6Q6R7X6T8W6V6W6X6Y6Z8I7H"),
    (0x03a3, "8Y7K7L8H7N7O7P7Q7R6g6h6i6j6k6l6m6n6o6p6q6r6s6t6u6v6w6x6y6z7g7h7i7j7k7l7m7n7o7p7q7r7s7t7u"),
    (0x03d0, "7w7x7Y7Z8G8h8i8j"),
    (0x03d9, "8k8L8l8M8m8N8n8O8o8P8p8Q8q8R8r8S8s8T8t8U8u8V8v8w8x8y8z"),
    (0x03f5, "9g9h"),
    (0x03f8, "9i"),
    (0x03fb, "\
        9j9k9L9M9NS1T1U1V1W1X1Y1Z1G2H2I2J2K2L2M2N2G0H0I0J0K0L0M0N0O0P0Q0R0S0T0U0V0W0X0Y0Z0G1H1I1J1K1L1M1\
        N1O1P1Q1R1g0h0i0j0k0l0m0n0o0p0q0r0s0t0u0v0w0x0y0z0g1h1i1j1k1l1m1n1o1p1q1r1s1t1u1v1w1x1y1z1g2h2i2\
        j2k2l2m2n2O2o2P2p2Q2q2R2r2S2s2T2t2U2u2V2v2W2w2X2x2Y2y2Z2z2G3g3H3h3I3i3J3j3K3k3"),
    (0x048a, "\
        M3m3N3n3O3o3P3p3Q3q3R3r3S3s3T3t3U3u3V3v3W3w3X3x3Y3y3Z3z3G4g4H4h4I4i4J4j4K4k4L4l4M4m4N4n4O4o4P4p4\
        Q4q4R4r4S4s4T4U4u4V4v4W4w4X4x4Y4y4Z4z4G5g5"),
    (0x04d0, "I5i5J5j5K5k5L5l5M5m5N5n5O5o5P5p5Q5q5R5r5S5s5T5t5U5u5V5v5W5w5X5x5Y5y5Z5z5G6g6H6h6I6i6"),
    (0x0500, "P6p6Q6q6R6r6S6s6T6t6U6u6V6v6W6w6"),
    (0x0531, "H7I7J7K7L7M7N7O7P7Q7R7S7T7U7V7W7X7Y7Z7G8H8I8J8K8L8M8N8O8P8Q8R8S8T8U8V8W8X8"),
    (0x0561, "h7i7j7k7l7m7n7o7p7q7r7s7t7u7v7w7x7y7z7g8h8i8j8k8l8m8n8o8p8q8r8s8t8u8v8w8x8"),
    (0x1e00, "\
        GlglHlhlIlilJljlKlklLlllMlmlNlnlOlolPlplQlqlRlrlSlslTltlUlulVlvlWlwlXlxlYlylZlzlGmgmHmhmImimJmjm\
        KmkmLmlmMmmmNmnmOmomPmpmQmqmRmrmSmsmTmtmUmumVmvmWmwmXmxmYmymZmzmGngnHnhnIninJnjnKnknLnlnMnmnNnnn\
        GponPnpnQnqnRnrnSnsnTntnUnunVnvnWnwnXnxnYnynZnznGogoHohoIoioJojoKokoLoloMomoNonoOoooPopoQoqoRoro\
        SosoTotoUouovowoxoyozogp"),
    (0x1ea0, "\
        LplpMpmpNpnpOpopPpppQpqpRprpSpspTptpUpupVpvpWpwpXpxpYpypZpzpGqgqHqhqIqiqJqjqKqkqLqlqMqmqNqnqOqoq\
        PqpqQqqqRqrqSqsqTqtqUquqVqvqWqwqXqxqYqyqZqzqGrgrHrhrIrirJrjrKrkrLrlrMrmrNrnrOrorPrpr"),
    (0x1f00, "gshsisjskslsmsnsGsHsIsJsKsLsMsNsospsqsrsssts"),
    (0x1f18, "OsPsQsRsSsTs"),
    (0x1f20, "yszsgthtitjtktltYsZsGtHtItJtKtLtmtntotptqtrtstttMtNtOtPtQtRtStTtutvtwtxtytzt"),
    (0x1f48, "UtVtWtXtYtZt"),
    (0x1f50, "kulumunuoupuquru"),
    (0x1f59, "Lu"),
    (0x1f5b, "Nu"),
    (0x1f5d, "Pu"),
    (0x1f5f, "RuwuxuyuzugvhvivjvWuXuYuZuGvHvIvJvkvlvmvnvovpvqvrvsvtvuvvvwvxv"),
    (0x1f80, "\
        gwhwiwjwkwlwmwnwGwHwIwJwKwLwMwNwowpwqwrwswtwuwvwOwPwQwRwSwTwUwVwwwxwywzwgxhxixjxWwXwYwZwGxHxIxJx\
        kxlxmxnxox"),
    (0x1fb6, "qxrxKxLxKvLvNx"),
    (0x1fc2, "sxtxux"),
    (0x1fc6, "wxxxMvNvOvPvTx"),
    (0x1fd0, "yxzxgyhy"),
    (0x1fd6, "kylyYxZxQvRv"),
    (0x1fe0, "nyoypyqyrysytyuyNyOyUvVvSy"),
    (0x1ff2, "xyyy"),
    (0x1ff6, "hzizSvTvWvXvYy"),
    (0x2160, "G9H9I9J9K9L9M9N9O9P9Q9R9S9T9U9V9g9h9i9j9k9l9m9n9o9p9q9r9s9t9u9v9"),
    (0x24b6, "\
        @A@B@C@D@E@F@G@H@I@J@K@L@M@N@O@P@Q@R@S@T@U@V@W@X@Y@Z@a@b@c@d@e@f@g@h@i@j@k@l@m@n@o@p@q@r@s@t@u@v\
        @w@x@y@z"),
    (0xff21, "A@B@C@D@E@F@G@H@I@J@K@L@M@N@O@P@Q@R@S@T@U@V@W@X@Y@Z@"),
    (0xff41, "a@b@c@d@e@f@g@h@i@j@k@l@m@n@o@p@q@r@s@t@u@v@w@x@y@z@"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_as_mariadb_does() {
        for (name, file) in [
            ("täble", "t@0kble"),
            ("my-db_1", "my@002ddb_1"),
            ("Äß×€", "@0K@1j@00d7@20ac"),
            ("Ωώ", "@7P@7u"),
            ("жЖ", "@m0@M0"),
            ("ⓐＡ", "@@a@A@"),
            ("@", "@0040"),
            ("日", "@65e5"),
        ] {
            assert_eq!(encode(name), file, "{name}");
            assert_eq!(decode(file), name, "{file}");
        }
    }

    #[test]
    fn each_character_has_a_code_of_its_own() {
        let all = (1..=0xffff).filter_map(char::from_u32);
        let mut files = std::collections::BTreeSet::new();
        for character in all {
            let name = character.to_string();
            let file = encode(&name);
            assert_eq!(decode(&file), name, "{file}");
            assert!(files.insert(file), "{name}");
        }
    }

    #[test]
    fn what_is_no_name_of_a_file_is_shown_as_it_is() {
        for file in ["", "@", "@0", "a@zz", "@!!!!", "@@@", "@ä"] {
            decode(file);
        }
        assert_eq!(decode("a@!b"), "a@!b");
    }
}
