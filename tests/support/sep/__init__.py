"""What tests of HBase change capture share."""
