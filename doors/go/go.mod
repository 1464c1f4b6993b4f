module rockmill.org/rockmill

go 1.21

require github.com/linxGnu/grocksdb v1.11.1
